CREATE TABLE audit_start (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    seal TEXT NOT NULL
);
INSERT INTO audit_start VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000', '');
CREATE TRIGGER audit_start_is_not_deleted BEFORE DELETE ON audit_start
    BEGIN SELECT RAISE(ABORT, 'the start of the audit record is never deleted'); END;
DROP TRIGGER audit_is_not_deleted;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit WHEN OLD.seq > (SELECT seq FROM audit_start)
    BEGIN SELECT RAISE(ABORT, 'audit rows are never deleted, but for those before its start'); END;
