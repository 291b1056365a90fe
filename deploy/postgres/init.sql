-- The logins of a new database server; run once, by the server's image, as its superuser.
--
-- om_owner    `om migrate` only: owns the database and the tables, may create the roles om_app and om_system.
-- om_service  every other process: owns nothing. `om migrate` lets it become om_app and om_system, which row-level
--             security binds; as itself (NOINHERIT) it has the rights of neither, and never those of both at once.

\set ON_ERROR_STOP on
\getenv owner_password OM_OWNER_PASSWORD
\getenv service_password OM_SERVICE_PASSWORD

CREATE ROLE om_owner LOGIN NOSUPERUSER CREATEROLE PASSWORD :'owner_password';
CREATE ROLE om_service LOGIN NOSUPERUSER NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT 180
    PASSWORD :'service_password';

ALTER DATABASE :"DBNAME" OWNER TO om_owner;
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO om_service;

-- No password: the superuser can only come in by the socket inside the container.
ALTER ROLE CURRENT_USER PASSWORD NULL;
