-- What the words of the texts for all dialects are in PostgreSQL.

-- fragment: id
uuid

-- fragment: name
text COLLATE "C"

-- fragment: long_name
text COLLATE "C"

-- fragment: word
text COLLATE "C"

-- fragment: text
text

-- fragment: bigint
bigint

-- fragment: key
key

-- fragment: time
to_timestamp(# / 1e6)

-- fragment: is_json
-- The cast of a text that is no JSON fails.
#::json IS NOT NULL

-- fragment: rows

-- fragment: serial
bigint GENERATED ALWAYS AS IDENTITY

-- fragment: serial_rows

-- fragment: updated_rows
-- Rows that are updated often, in columns without an index, get free space for their next version
-- on the same page.
WITH (fillfactor = 50)

-- fragment: replaced_rows
-- Every run leaves two dead rows, however many runs wait: vacuum after a fixed number of them
-- instead of a share of the table, and without delay.
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
)

-- fragment: in_ids
= ANY (:ids::uuid[])

-- fragment: in_keys
= ANY (:keys::text[])

-- fragment: in_others
= ANY (:others::text[])

-- fragment: for_update
FOR UPDATE

-- fragment: skip_locked
FOR UPDATE SKIP LOCKED

-- fragment: this_era
-- The condition gives this transaction its number before the boundary is read: see ADR 26.
CASE
    WHEN txid_current() > 0
    THEN least(pg_sequence_last_value('tickwork_era'), txid_current())
END

-- fragment: era_first
era,

-- fragment: set_era
-- In a subquery, it is computed once for all rows.
era = (SELECT {this_era}),

-- fragment: keep_first
ON CONFLICT DO NOTHING
