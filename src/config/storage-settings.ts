import { boolean, integer, optionalPath, optionalText, text, texts } from '../core/setting.ts';

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

/** Settings of secrets, to which environments refer. */
export const SECRET_SETTINGS = {
  'secrets.keyFile': optionalPath({
    default: null,
    defaultText: '`secrets.key` in the data directory, made with the first secret; with `storage.url`: none',
    doc: 'A file with the key of secrets: 32 bytes in Base64 or hexadecimal (`openssl rand -base64 32`), readable by its owner only. Of several lines the first key encrypts, and all decrypt. All replicas need the same file.',
    example: '/etc/rookery/secrets.key',
  }),
  'secrets.key': optionalText({
    default: null,
    doc: 'The content of such a file as text, for the environment.',
    example: 'a key of 32 bytes in Base64',
    isSecret: true,
  }),
  'secrets.keyCommand': optionalText({
    default: null,
    doc: 'A command for `/bin/sh -c` that prints the content of such a file, run once at each start, for example to read a vault.',
    example: 'vault kv get -field=key secret/rookery',
    isSecret: true,
  }),
  'secrets.allowUnreadable': boolean({
    default: false,
    doc: 'Whether the service starts although it lacks the keys of stored secrets. Code that uses them fails to start until they are set again.',
    example: 'true',
  }),
} as const;

/** `host:port`, with an IPv6 address in brackets; or an empty text. */
const ADDRESS = /^$|^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/;
const ADDRESS_SHAPE = 'host:port (an IPv6 address in brackets)';

/** Settings for several replicas of the service over one PostgreSQL. */
export const CLUSTER_SETTINGS = {
  'cluster.listen': text({
    default: '',
    defaultText: 'none: this is the only replica',
    pattern: ADDRESS,
    shape: ADDRESS_SHAPE,
    doc: 'The address on which this replica listens for others. It needs `storage.url`, and `cluster.secretFile` or `cluster.tls.*`. Allow only replicas to reach it.',
    example: '10.0.0.5:7700',
  }),
  'cluster.advertise': text({
    default: '',
    defaultText: '`cluster.listen`, when that names one address',
    pattern: ADDRESS,
    shape: ADDRESS_SHAPE,
    doc: 'The address under which others reach this replica, if it differs from `cluster.listen`.',
    example: 'rookery-0.rookery:7700',
  }),
  'cluster.secretFile': optionalPath({
    default: null,
    doc: 'A file with the secret of all replicas, at least 32 bytes, readable by its owner only (mode 0600); a newline at the end is ignored. Every process that has it can act as a replica.',
    example: '/etc/rookery/cluster.secret',
  }),
  'cluster.tls.certFile': optionalPath({
    default: null,
    doc: 'Instead of a secret: the certificate of this replica, in PEM, for client and server authentication.',
    example: '/etc/rookery/replica.pem',
  }),
  'cluster.tls.keyFile': optionalPath({
    default: null,
    doc: 'The private key of `cluster.tls.certFile`, in PEM, readable by its owner only (mode 0600).',
    example: '/etc/rookery/replica.key',
  }),
  'cluster.tls.caFile': optionalPath({
    default: null,
    doc: 'The authority of replica certificates, in PEM. Use it for nothing else: every holder of such a certificate can act as a replica.',
    example: '/etc/rookery/cluster-ca.pem',
  }),
  'cluster.drainMs': integer({
    default: 2000,
    min: 0,
    max: 300_000,
    unit: 'milliseconds',
    doc: 'How long a stopping replica serves after it reports that it is not ready. Then it hands over what it owns.',
    example: '10000',
  }),
  'cluster.nodeLostMs': integer({
    default: 300_000,
    min: 10_000,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'How long agents and jobs of a dead replica wait for its return; they may still run there. Then they become FAILED.',
    example: '60000',
  }),
  'cluster.podsLostMs': integer({
    default: 2000,
    min: 0,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'How long the pods of a dead replica wait for it. A replica is dead 8 s after its last heartbeat. Then another replica takes its pods over; until then their calls wait, 15 s at most. A replica that was stopped has at least 10 s to start again.',
    example: '30000',
  }),
  roles: texts({
    default: ['frontend', 'meta', 'worker'],
    pattern: /^(frontend|meta|worker)$/,
    shape: 'frontend, meta and worker',
    mayBeEmpty: false,
    doc: 'What this replica does: `frontend` and `meta` serve their entry (as `frontend.enabled` and `meta.enabled` allow), `worker` runs agents, functions and jobs. Less than all three needs other replicas.',
    example: '[frontend, meta]',
    flag: '--role <roles>',
  }),
} as const;
