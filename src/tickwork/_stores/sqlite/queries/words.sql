-- What the words of the texts for all dialects are in SQLite.

-- fragment: id
TEXT

-- fragment: name
TEXT

-- fragment: long_name
TEXT

-- fragment: word
TEXT

-- fragment: text
TEXT

-- fragment: bigint
INTEGER

-- fragment: key
key

-- fragment: time
datetime(# / 1000000, 'unixepoch')

-- fragment: is_json
json_valid(#)

-- fragment: rows
STRICT, WITHOUT ROWID

-- fragment: serial
INTEGER

-- fragment: serial_rows
STRICT

-- fragment: updated_rows
STRICT, WITHOUT ROWID

-- fragment: replaced_rows
STRICT, WITHOUT ROWID

-- fragment: in_ids
IN (SELECT value FROM json_each(:ids))

-- fragment: in_keys
IN (SELECT value FROM json_each(:keys))

-- fragment: in_others
IN (SELECT value FROM json_each(:others))

-- fragment: for_update
-- SQLite has one writer at a time: there is nothing to lock.

-- fragment: skip_locked

-- fragment: this_era

-- fragment: era_first

-- fragment: set_era

-- fragment: keep_first
ON CONFLICT DO NOTHING
