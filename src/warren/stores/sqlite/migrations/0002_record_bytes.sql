-- No record counts less than 512 bytes: as many records as there are 512 bytes too many are surely enough to forget.
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
    DELETE FROM executions WHERE seq IN (
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

END;
CREATE TRIGGER execution_grows AFTER UPDATE OF size ON executions BEGIN
    INSERT INTO recorded VALUES (NEW.tenant, NEW.subject, NEW.size - OLD.size)
        ON CONFLICT (tenant, subject) DO UPDATE SET bytes = bytes + excluded.bytes;
    DELETE FROM executions WHERE seq IN (
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

END;
CREATE TRIGGER execution_unweighs AFTER DELETE ON executions WHEN OLD.size > 0 BEGIN
    UPDATE recorded SET bytes = bytes - OLD.size WHERE tenant = OLD.tenant AND subject = OLD.subject;
    DELETE FROM recorded WHERE tenant = OLD.tenant AND subject = OLD.subject AND bytes <= 0;
END;
