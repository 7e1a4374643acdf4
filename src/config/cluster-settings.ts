import { integer, optionalPath, text, texts } from '../core/setting.ts';

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
