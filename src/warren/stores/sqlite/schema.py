"""The tables, as numbered migrations. A migration that was released never changes: another is added.

Text columns hold text, or bytes where the text is not Unicode (`encoding.dump_text`), so the tables are not STRICT.
"""

from __future__ import annotations

import sqlite3
import time

from warren.errors import StoreError
from warren.records import FIRST_HASH

_FIRST = """
CREATE TABLE sandboxes (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    status TEXT NOT NULL,
    active INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    disk_bytes INTEGER NOT NULL,
    engine TEXT NOT NULL,
    image TEXT NOT NULL,
    image_digest TEXT NOT NULL,
    limits TEXT NOT NULL,
    storage TEXT NOT NULL,
    env TEXT NOT NULL,
    metadata TEXT NOT NULL,
    session_key TEXT,
    idle_timeout_s REAL,
    max_lifetime_s REAL,
    created_at REAL NOT NULL,
    active_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    reason TEXT,
    executions INTEGER NOT NULL DEFAULT 0,
    kept INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX sandboxes_session ON sandboxes (tenant, subject, session_key) WHERE session_key IS NOT NULL;
CREATE INDEX sandboxes_holding ON sandboxes (tenant, subject, active, memory_bytes, disk_bytes);
CREATE INDEX sandboxes_newest ON sandboxes (created_at, seq);

CREATE TABLE executions (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    kernel TEXT,
    code TEXT NOT NULL,
    background INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    started_at REAL NOT NULL,
    finished_at REAL,
    result TEXT,
    stdout BLOB,
    stderr BLOB
);
CREATE INDEX executions_newest ON executions (sandbox_id, started_at, seq);
CREATE INDEX executions_running ON executions (sandbox_id) WHERE result IS NULL;
CREATE INDEX executions_finished ON executions (sandbox_id, finished_at, seq) WHERE result IS NOT NULL;
CREATE TABLE bounds (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    kept_executions INTEGER NOT NULL
);
INSERT INTO bounds VALUES (1, 1000);
CREATE VIEW executions_too_many AS
    SELECT sandboxes.id AS sandbox_id, sandboxes.kept - bounds.kept_executions AS many
    FROM sandboxes, bounds WHERE sandboxes.kept > bounds.kept_executions;
CREATE TRIGGER execution_counts AFTER INSERT ON executions BEGIN
    UPDATE sandboxes SET executions = executions + 1, kept = kept + 1, active_at = max(active_at, NEW.started_at)
        WHERE id = NEW.sandbox_id;
    DELETE FROM executions WHERE seq IN (
        SELECT seq FROM executions WHERE sandbox_id = NEW.sandbox_id AND result IS NOT NULL ORDER BY finished_at, seq
        LIMIT coalesce((SELECT many FROM executions_too_many WHERE sandbox_id = NEW.sandbox_id), 0)
    );
END;
CREATE TRIGGER execution_ends AFTER UPDATE OF result ON executions BEGIN
    DELETE FROM executions WHERE seq IN (
        SELECT seq FROM executions WHERE sandbox_id = NEW.sandbox_id AND result IS NOT NULL ORDER BY finished_at, seq
        LIMIT coalesce((SELECT many FROM executions_too_many WHERE sandbox_id = NEW.sandbox_id), 0)
    );
END;
CREATE TRIGGER execution_goes AFTER DELETE ON executions BEGIN
    UPDATE sandboxes SET kept = kept - 1 WHERE id = OLD.sandbox_id;
END;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    key_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    address TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    details TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX audit_owner ON audit (tenant, subject);
CREATE INDEX audit_action ON audit (action);
CREATE INDEX audit_request ON audit (request_id);
CREATE INDEX audit_sandbox ON audit (sandbox_id) WHERE sandbox_id <> '';
CREATE INDEX audit_execution ON audit (execution_id) WHERE execution_id <> '';
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_is_not_edited BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit rows are never deleted'); END;
CREATE TABLE audit_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    seal TEXT NOT NULL
);
CREATE TRIGGER audit_head_is_not_deleted BEFORE DELETE ON audit_head
    BEGIN SELECT RAISE(ABORT, 'the head of the audit record is never deleted'); END;

CREATE TABLE api_keys (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
);

CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    target TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (tenant, subject, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_expiry ON idempotency (expires_at);
"""

_FORGET = """DELETE FROM executions WHERE seq IN (
        SELECT seq FROM (SELECT seq, sum(size) OVER (ORDER BY finished_at, seq) - size AS before FROM (
            SELECT seq, finished_at, size FROM executions
            WHERE tenant = NEW.tenant AND subject = NEW.subject AND result IS NOT NULL AND seq <> NEW.seq
            ORDER BY finished_at, seq LIMIT coalesce((
                SELECT many / 512 + 1 FROM recorded_too_much WHERE tenant = NEW.tenant AND subject = NEW.subject
            ), 0)
        )) WHERE before < (
            SELECT many FROM recorded_too_much WHERE tenant = NEW.tenant AND subject = NEW.subject
        )
    );
"""
"""No record counts less than 512 bytes, so that many records as there are 512 bytes too many are surely enough."""
_RECORD_BYTES = f"""
ALTER TABLE executions ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE bounds ADD COLUMN own_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE executions SET size = 512 + length(CAST(code AS BLOB)) + length(CAST(result AS BLOB)) + length(stdout)
    + length(stderr) WHERE result IS NOT NULL;
CREATE TABLE recorded (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, subject)
) WITHOUT ROWID;
INSERT INTO recorded SELECT tenant, subject, sum(size) FROM executions WHERE size > 0 GROUP BY tenant, subject;
CREATE INDEX executions_oldest ON executions (tenant, subject, finished_at, seq, size) WHERE result IS NOT NULL;
CREATE VIEW recorded_too_much AS
    SELECT tenant, subject, bytes - own_bytes AS many FROM recorded, bounds WHERE own_bytes > 0 AND bytes > own_bytes;
CREATE TRIGGER execution_weighs AFTER INSERT ON executions WHEN NEW.size > 0 BEGIN
    INSERT INTO recorded VALUES (NEW.tenant, NEW.subject, NEW.size)
        ON CONFLICT (tenant, subject) DO UPDATE SET bytes = bytes + excluded.bytes;
    {_FORGET}
END;
CREATE TRIGGER execution_grows AFTER UPDATE OF size ON executions BEGIN
    INSERT INTO recorded VALUES (NEW.tenant, NEW.subject, NEW.size - OLD.size)
        ON CONFLICT (tenant, subject) DO UPDATE SET bytes = bytes + excluded.bytes;
    {_FORGET}
END;
CREATE TRIGGER execution_unweighs AFTER DELETE ON executions WHEN OLD.size > 0 BEGIN
    UPDATE recorded SET bytes = bytes - OLD.size WHERE tenant = OLD.tenant AND subject = OLD.subject;
    DELETE FROM recorded WHERE tenant = OLD.tenant AND subject = OLD.subject AND bytes <= 0;
END;
"""  # noqa: S608 - our own names

_AUDIT_START = f"""
CREATE TABLE audit_start (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    seal TEXT NOT NULL
);
INSERT INTO audit_start VALUES (1, 0, '{FIRST_HASH}', '');
CREATE TRIGGER audit_start_is_not_deleted BEFORE DELETE ON audit_start
    BEGIN SELECT RAISE(ABORT, 'the start of the audit record is never deleted'); END;
DROP TRIGGER audit_is_not_deleted;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit WHEN OLD.seq > (SELECT seq FROM audit_start)
    BEGIN SELECT RAISE(ABORT, 'audit rows are never deleted, but for those before its start'); END;
"""  # noqa: S608 - our own names

_CALLBACKS = """
CREATE TABLE callbacks (
    sandbox_id TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    token TEXT NOT NULL,
    tools TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    port INTEGER NOT NULL,
    peer TEXT NOT NULL
) WITHOUT ROWID;
"""

_FILES = """
CREATE TABLE files (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    blob TEXT NOT NULL,
    size INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL
);
CREATE INDEX files_owner ON files (tenant, subject, created_at, seq);
CREATE INDEX files_expiry ON files (expires_at);
CREATE TABLE files_weigh (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, subject)
) WITHOUT ROWID;
CREATE TRIGGER file_comes AFTER INSERT ON files BEGIN
    INSERT INTO files_weigh VALUES (NEW.tenant, NEW.subject, NEW.weight)
        ON CONFLICT (tenant, subject) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER file_goes AFTER DELETE ON files BEGIN
    UPDATE files_weigh SET bytes = bytes - OLD.weight WHERE tenant = OLD.tenant AND subject = OLD.subject;
    DELETE FROM files_weigh WHERE tenant = OLD.tenant AND subject = OLD.subject AND bytes <= 0;
END;
"""

_SKILLS = """
CREATE TABLE skills (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    source TEXT NOT NULL,
    is_shared INTEGER NOT NULL,
    category TEXT,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    server_id TEXT,
    folder TEXT NOT NULL,
    blob TEXT NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
);
CREATE UNIQUE INDEX skills_name ON skills (tenant, subject, name);
CREATE INDEX skills_shared ON skills (tenant, name) WHERE is_shared;
"""

_EGRESS = """
ALTER TABLE sandboxes ADD COLUMN egress TEXT NOT NULL DEFAULT '{"mode":"none","rules":[]}';
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    rule TEXT NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX grants_sandbox ON grants (sandbox_id);
CREATE TABLE secrets (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    placeholder TEXT NOT NULL,
    hosts TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (sandbox_id, name)
) WITHOUT ROWID;
"""

_RENDERS = """
CREATE TABLE renders (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    status TEXT NOT NULL,
    version TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    finished_at REAL,
    slides INTEGER NOT NULL,
    degraded TEXT NOT NULL,
    file_id TEXT,
    reason TEXT,
    error TEXT
);
CREATE INDEX renders_owner ON renders (tenant, subject, created_at, seq);
CREATE INDEX renders_unfinished ON renders (seq) WHERE finished_at IS NULL;
"""

_RENDER_FINDINGS = """
ALTER TABLE renders ADD COLUMN missing TEXT NOT NULL DEFAULT '[]';
ALTER TABLE renders ADD COLUMN script_errors TEXT NOT NULL DEFAULT '[]';
"""

MIGRATIONS = (_FIRST, _RECORD_BYTES, _AUDIT_START, _CALLBACKS, _FILES, _SKILLS, _EGRESS, _RENDERS, _RENDER_FINDINGS)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration that was made; 0 for an empty database."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_version'").fetchone()
    if known is None:
        return 0
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(version or 0)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Make the missing migrations, each in a transaction of its own. Raises StoreError for a later version's file."""
    version = read_version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} is of a later version of Warren (schema {version}, and this one knows {len(MIGRATIONS)}): "
            f"use that version, or restore a backup of the file from before it"
        )
    for number in range(version + 1, len(MIGRATIONS) + 1):
        _make(connection, number)


def _make(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # WHY: another process may have made it while this one waited for the lock.
        if read_version(connection) < number:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, made_at REAL)")
            for statement in statements(MIGRATIONS[number - 1]):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", (number, time.time()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def statements(script: str) -> list[str]:
    """Split a script. `executescript` would commit the transaction it is in."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending.strip())
            pending = ""
    return found
