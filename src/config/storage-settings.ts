import { integer, optionalPath, optionalText } from '../core/setting.ts';

/**
 * Matches unambiguous URLs. An unescaped `#`, `?` or `/` in a password would end the host, and the rest would
 * be printed as a name.
 */
const POSTGRES_URL =
  /^(?!.*%(?![0-9A-Fa-f]{2}))postgres(ql)?:\/\/([^\s/?#]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:]*)(:\d{1,5})?(\/[^\s/?#@]*)?(\?[^\s#@]*)?$/;
const POSTGRES_SHAPE =
  'a URL of a PostgreSQL database, postgres://user:password@host:port/database, with @ : / # ? % of the password percent-encoded (%40 %3A %2F %23 %3F %25)';

/** Settings of the database for the service's records. */
export const STORAGE_SETTINGS = {
  'storage.url': optionalText({
    default: null,
    pattern: POSTGRES_URL,
    shape: POSTGRES_SHAPE,
    isSecret: true,
    doc: 'The PostgreSQL (14 or newer) that holds all records. Without it the service has a database in the data directory. Prefer `storage.urlFile`: other users can read the command line. Percent-encode `@ : / # ? %` in the password.',
    example: 'postgres://rookery@db.example.com:5432/rookery?sslmode=verify-full',
    flag: '--storage-url <url>',
  }),
  'storage.urlFile': optionalPath({
    default: null,
    doc: 'A file with the value of `storage.url`, which contains a password.',
    example: '/etc/rookery/storage-url',
  }),
  'storage.listenUrl': optionalText({
    default: null,
    defaultText: '`storage.url`',
    pattern: POSTGRES_URL,
    shape: POSTGRES_SHAPE,
    isSecret: true,
    doc: 'If `storage.url` points to a transaction pooler (PgBouncer): a direct URL, on which a replica listens for changes. Without it changes are seen within two seconds.',
    example: 'postgres://rookery@db.example.com:5432/rookery',
  }),
  'storage.waitMs': integer({
    default: 5000,
    min: 100,
    max: 60_000,
    unit: 'milliseconds',
    doc: 'How long a read or write waits for a connection to PostgreSQL, for example during a failover. Then it fails with 503.',
    example: '10000',
  }),
  'storage.poolSize': integer({
    default: 10,
    min: 2,
    max: 1000,
    unit: 'connections',
    doc: 'How many connections to PostgreSQL this process uses. A quarter is reserved for reads.',
    example: '20',
  }),
} as const;
