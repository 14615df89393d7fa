"""The public names of `import warren`, imported at first use."""

from warren.domain.errors import (
    BuildFailed,
    ConfigError,
    Conflict,
    EngineError,
    EngineUnavailable,
    Error,
    Forbidden,
    InsufficientStorage,
    InvalidRequest,
    NotFound,
    OutOfRange,
    OutsideWorkspace,
    Overloaded,
    PreconditionFailed,
    QuotaExceeded,
    RenderFailed,
    RequestError,
    SandboxLost,
    StartFailed,
    StoreError,
    TooLarge,
    Unauthenticated,
    Unreachable,
    Unsupported,
)
from warren.sdk._async.client import AsyncClient
from warren.sdk._async.egress import AsyncWayOut
from warren.sdk._async.executions import AsyncExecution, AsyncStream
from warren.sdk._async.files import AsyncFiles
from warren.sdk._async.kernels import AsyncKernels
from warren.sdk._async.ports import AsyncPorts
from warren.sdk._async.renders import AsyncRenders
from warren.sdk._async.sandbox import AsyncSandbox
from warren.sdk._async.sandboxes import AsyncSandboxes
from warren.sdk._async.skills import AsyncSkills
from warren.sdk._async.terminal import AsyncTerminal
from warren.sdk._sync.client import Client
from warren.sdk._sync.egress import WayOut
from warren.sdk._sync.executions import Execution, Stream
from warren.sdk._sync.files import Files
from warren.sdk._sync.kernels import Kernels
from warren.sdk._sync.ports import Ports
from warren.sdk._sync.renders import Renders
from warren.sdk._sync.sandbox import Sandbox
from warren.sdk._sync.sandboxes import Sandboxes
from warren.sdk._sync.skills import Skills
from warren.sdk._sync.terminal import Terminal
from warren.sdk.events import Event, Output, Started
from warren.sdk.failures import ExecutionFailed, NotUnderstood, ServiceUnreachable
from warren.sdk.results import Display, FileChange, OneShotResult, OutputFile, Picture, Raised, Result
from warren.sdk.retries import Retries
from warren.sdk.values import Owner, Page
from warren.sdk.values_files import Entry, FileInfo, Found, Listing, Match
from warren.sdk.values_renders import DegradedSlide, MissingFile, Rendered, RenderInfo, RenderStep
from warren.sdk.values_sandboxes import (
    Egress,
    EgressRule,
    Grant,
    InstalledPackages,
    Kernel,
    Package,
    SandboxInfo,
    Secret,
    SharedLink,
    TerminalInfo,
    Usage,
)
from warren.sdk.values_service import AuditRow, Build, Health, Image, InstalledSkills, SkillInfo

__all__ = [
    "AsyncClient",
    "AsyncExecution",
    "AsyncFiles",
    "AsyncKernels",
    "AsyncPorts",
    "AsyncRenders",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncSkills",
    "AsyncStream",
    "AsyncTerminal",
    "AsyncWayOut",
    "AuditRow",
    "Build",
    "BuildFailed",
    "Client",
    "ConfigError",
    "Conflict",
    "DegradedSlide",
    "Display",
    "Egress",
    "EgressRule",
    "EngineError",
    "EngineUnavailable",
    "Entry",
    "Error",
    "Event",
    "Execution",
    "ExecutionFailed",
    "FileChange",
    "FileInfo",
    "Files",
    "Forbidden",
    "Found",
    "Grant",
    "Health",
    "Image",
    "InstalledPackages",
    "InstalledSkills",
    "InsufficientStorage",
    "InvalidRequest",
    "Kernel",
    "Kernels",
    "Listing",
    "Match",
    "MissingFile",
    "NotFound",
    "NotUnderstood",
    "OneShotResult",
    "OutOfRange",
    "Output",
    "OutputFile",
    "OutsideWorkspace",
    "Overloaded",
    "Owner",
    "Package",
    "Page",
    "Picture",
    "Ports",
    "PreconditionFailed",
    "QuotaExceeded",
    "Raised",
    "RenderFailed",
    "RenderInfo",
    "RenderStep",
    "Rendered",
    "Renders",
    "RequestError",
    "Result",
    "Retries",
    "Sandbox",
    "SandboxInfo",
    "SandboxLost",
    "Sandboxes",
    "Secret",
    "ServiceUnreachable",
    "SharedLink",
    "SkillInfo",
    "Skills",
    "StartFailed",
    "Started",
    "StoreError",
    "Stream",
    "Terminal",
    "TerminalInfo",
    "TooLarge",
    "Unauthenticated",
    "Unreachable",
    "Unsupported",
    "Usage",
    "WayOut",
]
