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
