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
