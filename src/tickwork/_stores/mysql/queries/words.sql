-- What the words of the texts for all dialects are in MySQL and MariaDB.

-- fragment: id
CHAR(36) CHARACTER SET ascii COLLATE ascii_bin

-- fragment: name
VARCHAR(255)

-- fragment: long_name
VARCHAR(512)

-- fragment: word
VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin

-- fragment: text
LONGTEXT

-- fragment: bigint
BIGINT

-- fragment: key
`key`

-- fragment: time
TIMESTAMPADD(MICROSECOND, #, TIMESTAMP '1970-01-01 00:00:00')

-- fragment: is_json
json_valid(#)

-- fragment: rows
-- Texts compare byte by byte, trailing spaces included: MariaDB and MySQL name that collation
-- differently, and each server reads its own conditional comment.
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */

-- fragment: serial
BIGINT AUTO_INCREMENT

-- fragment: serial_rows
{rows}

-- fragment: updated_rows
{rows}

-- fragment: replaced_rows
{rows}

-- fragment: in_ids
IN (:ids)

-- fragment: in_keys
IN (:keys)

-- fragment: in_others
IN (:others)

-- fragment: for_update
FOR UPDATE

-- fragment: skip_locked
FOR UPDATE SKIP LOCKED

-- fragment: this_era

-- fragment: era_first

-- fragment: set_era

-- fragment: keep_first
ON DUPLICATE KEY UPDATE id = id
