CREATE TABLE callbacks (
    sandbox_id TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    token TEXT NOT NULL,
    tools TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    port INTEGER NOT NULL,
    peer TEXT NOT NULL
) WITHOUT ROWID;
