import { integer, optionalPath, text, texts } from '../core/setting.ts';

/** `host:port`, an address of IPv6 in brackets; or nothing. */
const ADDRESS = /^$|^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/;
const ADDRESS_SHAPE = 'host:port (an IPv6 address in brackets)';

/** Several replicas of the service over one PostgreSQL. */
export const CLUSTER_SETTINGS = {
  'cluster.listen': text({
    default: '',
    defaultText: 'none: this is the only replica',
    pattern: ADDRESS,
    shape: ADDRESS_SHAPE,
    doc: 'Where this replica listens for the others. It needs `storage.url`, and `cluster.secretFile` or `cluster.tls.*`. Callers have no business there: let only replicas reach it.',
    example: '10.0.0.5:7700',
  }),
  'cluster.advertise': text({
    default: '',
    defaultText: '`cluster.listen`, when that names one address',
    pattern: ADDRESS,
    shape: ADDRESS_SHAPE,
    doc: 'Where the others find this replica, if that is not what it listens on.',
    example: 'rookery-0.rookery:7700',
  }),
  'cluster.secretFile': optionalPath({
    default: null,
    doc: 'A file with the secret that all replicas share, at least 32 bytes, readable by its owner only (mode 0600); a newline at its end does not count. Whoever has it is a replica.',
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
    doc: 'The authority that signs the certificates of replicas, in PEM. Whoever has a certificate of it is a replica, so it must have no other purpose.',
    example: '/etc/rookery/cluster-ca.pem',
  }),
  'cluster.drainMs': integer({
    default: 2000,
    min: 0,
    max: 300_000,
    unit: 'milliseconds',
    doc: 'How long a replica that ends goes on as before after it has said that it is not ready, so that load balancers stop sending to it. Then it hands over what it owns.',
    example: '10000',
  }),
  'cluster.nodeLostMs': integer({
    default: 300_000,
    min: 10_000,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'How long the agents and jobs of a replica that died wait for it to come back: they may go on running there. Then they are FAILED.',
    example: '60000',
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
