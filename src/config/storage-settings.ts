import { integer, optionalPath, optionalText } from '../core/setting.ts';

/** Where the service keeps its records. */
export const STORAGE_SETTINGS = {
  'storage.url': optionalText({
    default: null,
    pattern: /^postgres(ql)?:\/\/\S+$/,
    shape: 'a URL of a PostgreSQL database, postgres://user:password@host:port/database',
    isSecret: true,
    doc: 'The PostgreSQL (14 or newer) that holds all records. Without it the service has a database of its own in the data directory. On a command line others can read the password: prefer `storage.urlFile`, or the environment.',
    example: 'postgres://rookery@db.example.com:5432/rookery?sslmode=verify-full',
    flag: '--storage-url <url>',
  }),
  'storage.urlFile': optionalPath({
    default: null,
    doc: 'A file with what `storage.url` would say, so that a password stands on no command line and in no environment.',
    example: '/etc/rookery/storage-url',
  }),
  'storage.listenUrl': optionalText({
    default: null,
    defaultText: '`storage.url`',
    pattern: /^postgres(ql)?:\/\/\S+$/,
    shape: 'a URL of a PostgreSQL database, postgres://user:password@host:port/database',
    isSecret: true,
    doc: 'Where a replica listens for changes of the others, when `storage.url` leads to a pooler of transactions (PgBouncer): a URL past it, to the same database. Without it changes are seen within two seconds.',
    example: 'postgres://rookery@db.example.com:5432/rookery',
  }),
  'storage.waitMs': integer({
    default: 5000,
    min: 100,
    max: 60_000,
    unit: 'milliseconds',
    doc: 'How long a read or a write waits for a connection to PostgreSQL, as while that is started again or fails over. Then it is answered with 503.',
    example: '10000',
  }),
  'storage.poolSize': integer({
    default: 10,
    min: 2,
    max: 1000,
    unit: 'connections',
    doc: 'How many connections to PostgreSQL this process uses for reads and writes. A quarter of them is kept for reads.',
    example: '20',
  }),
} as const;
