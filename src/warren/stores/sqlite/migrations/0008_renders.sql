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
