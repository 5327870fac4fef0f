-- name: get_version
SELECT version, compatible_from FROM tickwork_meta;
