-- Keys that are valid only for clients of certain networks: a list of them as JSON.
ALTER TABLE api_keys ADD COLUMN networks TEXT NOT NULL DEFAULT '[]';
