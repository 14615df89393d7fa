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
