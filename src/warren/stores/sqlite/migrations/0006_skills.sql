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
