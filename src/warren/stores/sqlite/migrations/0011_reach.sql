ALTER TABLE sandboxes ADD COLUMN reach TEXT NOT NULL DEFAULT '';

CREATE TABLE identity (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    id TEXT NOT NULL
);
INSERT INTO identity VALUES (1, lower(hex(randomblob(16))));
CREATE TRIGGER identity_is_not_changed BEFORE UPDATE ON identity
    BEGIN SELECT RAISE(ABORT, 'the identity of a store never changes'); END;
CREATE TRIGGER identity_is_not_deleted BEFORE DELETE ON identity
    BEGIN SELECT RAISE(ABORT, 'the identity of a store is never deleted'); END;
