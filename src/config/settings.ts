import {
  boolean,
  choice,
  integer,
  optionalPath,
  optionalText,
  path,
  type Setting,
  text,
  textMap,
  texts,
} from './setting.ts';

/**
 * Every setting of the service, once. The type `Config`, the flags and `--help` of `serve`, the names of the environment
 * variables, the reader of the YAML file, `docs/configuration.md` and `rookery.sample.yaml` all come from this table.
 * To add a setting, add a row and run `npm run generate`.
 */
export const SETTINGS = {
  dataDir: path({
    default: '',
    defaultText: '/var/lib/rookery as root, else $XDG_DATA_HOME/rookery or ~/.local/share/rookery',
    doc: 'Where the service keeps its database, the logs of instances and the sockets of its launchers. It is created when it is missing. Two services never share one.',
    example: '/srv/rookery',
    flag: '--data-dir <dir>',
  }),
  host: text({
    default: '127.0.0.1',
    doc: 'The address that the frontend binds. Any address that is not loopback needs `enable_func_token_auth`, or `insecure`.',
    example: '0.0.0.0',
    flag: '--host <address>',
  }),
  port: integer({
    default: 8888,
    min: 0,
    max: 65_535,
    doc: 'The port of the frontend. 0 takes any free port; the `ready` line says which.',
    example: '8080',
    flag: '--port <port>',
  }),
  metaHost: text({
    default: '127.0.0.1',
    doc: 'The address that the meta_service binds, under the same rule as `host`.',
    example: '0.0.0.0',
    flag: '--meta-host <address>',
  }),
  metaPort: integer({
    default: 31_182,
    min: 0,
    max: 65_535,
    doc: 'The port of the meta_service. 0 takes any free port.',
    example: '31183',
    flag: '--meta-port <port>',
  }),
  'frontend.enabled': boolean({
    default: true,
    doc: 'Whether this process serves the frontend (agents, calls, jobs).',
    example: 'false',
  }),
  'meta.enabled': boolean({
    default: true,
    doc: 'Whether this process serves the meta_service (functions, reservations, pools).',
    example: 'false',
  }),
  allowedHosts: texts({
    default: [],
    pattern: /^[^\s/:@]+$|^\[?[0-9a-fA-F:.]+\]?$/,
    shape: 'host names without scheme, port and path',
    doc: 'Names that a request may carry in its `Host` header, beside the loopback names and the bound address. A request for another name is refused with 421, which keeps web pages of strangers from reaching the service under a name of theirs.',
    example: '[rookery.example.com]',
  }),
  business: text({
    default: 'yrk',
    pattern: /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/,
    shape: '1 to 64 letters, digits, "-" or "_", the first a letter or a digit',
    doc: 'The business part of the URNs of functions: `sn:cn:<business>:<tenant>:function:…`.',
    example: 'acme',
  }),
  clusters: texts({
    default: ['cluster001'],
    doc: 'The clusters that a reservation of instances may name; the first is the default.',
    example: '[cluster001, cluster002]',
  }),
  enable_func_token_auth: boolean({
    default: false,
    doc: 'Whether every request needs a valid JWT. It needs one of `jwt.secret`, `jwt.secretFile`, `jwt.publicKeyFile` and `jwt.jwksUrl`.',
    example: 'true',
  }),
  'jwt.secret': optionalText({
    default: null,
    doc: 'The shared secret of HS256 tokens, at least 32 bytes. Best given by the environment, or by `jwt.secretFile`, which keeps it out of this file.',
    example: 'a text of at least thirty-two bytes',
    isSecret: true,
  }),
  'jwt.secretFile': optionalPath({
    default: null,
    doc: 'A file with the shared secret of HS256 tokens, at least 32 bytes; a newline at its end does not count.',
    example: '/etc/rookery/jwt.secret',
  }),
  'jwt.publicKeyFile': optionalPath({
    default: null,
    doc: 'A file with a public key in PEM for RS256 (at least 2048 bits), ES256 or EdDSA tokens; the key decides which of them is allowed.',
    example: '/etc/rookery/jwt.pub.pem',
  }),
  'jwt.jwksUrl': optionalText({
    default: null,
    doc: 'The URL of a JSON Web Key Set for RS256, ES256 or EdDSA tokens; https, or http on loopback.',
    example: 'https://login.example.com/.well-known/jwks.json',
  }),
  'jwt.issuer': optionalText({
    default: null,
    doc: 'What the claim `iss` of a token must be; not checked when unset.',
    example: 'https://login.example.com',
  }),
  'jwt.audience': optionalText({
    default: null,
    doc: 'What the claim `aud` of a token must hold; not checked when unset.',
    example: 'rookery',
  }),
  insecure: boolean({
    default: false,
    doc: 'Binds an address that is not loopback although authentication is off: whoever reaches the port may then run code on this machine.',
    example: 'true',
    flag: '--insecure',
  }),
  stopAgents: boolean({
    default: false,
    doc: 'Whether a stop of the service ends its agents too. Otherwise they live on and the next start adopts them.',
    example: 'true',
    flag: '--stop-agents',
  }),
  stopGraceMs: integer({
    default: 30_000,
    min: 0,
    max: 3_600_000,
    unit: 'milliseconds',
    doc: 'How long running calls may go on once the service was told to stop (SIGTERM). A second signal ends it at once.',
    example: '10000',
  }),
  defaultExecutor: choice(['process', 'docker', 'supervisor'], {
    default: 'process',
    doc: 'Which sandbox an instance gets whose request names none.',
    example: 'docker',
  }),
  requireIsolation: boolean({
    default: false,
    doc: 'Refuse to start an instance when a layer of isolation that its sandbox can have does not work on this machine. Otherwise it runs, and `rookery doctor` and its record say what is missing.',
    example: 'true',
    flag: '--require-isolation',
  }),
  network: choice(['host', 'none'], {
    default: 'host',
    doc: 'What instances reach: `host` is the outside over the network of the host, `none` only their own loopback.',
    example: 'none',
  }),
  createTimeoutMs: integer({
    default: 60_000,
    min: 100,
    max: 3_600_000,
    unit: 'milliseconds',
    doc: 'How long the create of an instance may take. At its end the create fails and nothing is left behind.',
    example: '120000',
  }),
  maxWaitingCalls: integer({
    default: 1000,
    min: 0,
    max: 1_000_000,
    unit: 'calls',
    doc: 'How many calls may wait for one agent. Above it a call is refused at once with 429.',
    example: '100',
  }),
  maxOpenCallMb: integer({
    default: 256,
    min: 8,
    max: 65_536,
    unit: 'MiB',
    doc: 'How much memory the bodies of all open calls may take together. Above it a call is refused at once with 429.',
    example: '512',
  }),
  maxStarting: integer({
    default: 256,
    min: 1,
    max: 65_536,
    unit: 'starts',
    doc: 'How many creates and restarts may go on at the same time. Above it one more is refused at once.',
    example: '32',
  }),
  maxProcesses: integer({
    default: 256,
    min: 8,
    max: 65_536,
    unit: 'processes and threads',
    doc: 'How many processes and threads one instance may have.',
    example: '64',
  }),
  orphanGraceMs: integer({
    default: 30_000,
    min: 0,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'How long a sandbox that belongs to no record stays before it is removed.',
    example: '60000',
  }),
  reconcileIntervalMs: integer({
    default: 300_000,
    min: 1000,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'How often records and sandboxes are compared while the service runs. The end of an instance is noticed at once, without it.',
    example: '60000',
  }),
  'process.spares': integer({
    default: 4,
    min: 0,
    max: 256,
    unit: 'processes',
    doc: 'How many sandboxes without code are kept ready per Python interpreter that is in use, so that a create takes milliseconds.',
    example: '16',
  }),
  'process.warm': texts({
    default: [],
    pattern: /^3\.\d{1,2}$/,
    shape: 'Python versions such as "3.11" (in quotes)',
    doc: 'Python versions whose launcher starts with the service instead of at the first create.',
    example: '["3.11"]',
  }),
  'process.pythons': textMap({
    default: {},
    keyPattern: /^3\.\d{1,2}$/,
    shape: 'a map from a Python version such as "3.11" (in quotes) to the path of its interpreter',
    doc: 'Interpreters by version, for those that are not found by themselves (on the PATH, in well-known places, from pyenv).',
    example: '{"3.13": /opt/python3.13/bin/python3.13}',
  }),
  'log.level': choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    doc: 'The least severe lines that are logged.',
    example: 'debug',
    flag: '--log-level <level>',
  }),
  'log.format': choice(['auto', 'json', 'pretty'], {
    default: 'auto',
    doc: 'How the log is written to stderr: one JSON object per line, or a line for a person to read. `auto` is pretty on a terminal and JSON elsewhere.',
    example: 'json',
    flag: '--log-format <format>',
  }),
  slowCallMs: integer({
    default: 10_000,
    min: 1,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'Requests that take longer than this are logged. Failed ones always are.',
    example: '1000',
  }),
} as const satisfies Readonly<Record<string, Setting<unknown>>>;

export type SettingPath = keyof typeof SETTINGS;

/** Environment variables that are not settings of the service: they belong to the command line client. */
export const CLIENT_VARIABLES = {
  ROOKERY_CONFIG: 'The configuration file of `serve` and `doctor`, when `--config` is not given.',
  ROOKERY_ADDRESS: 'Where the command line finds the frontend.',
  ROOKERY_META_ADDRESS: 'Where the command line finds the meta_service.',
  ROOKERY_TOKEN: 'The token that the command line sends.',
  ROOKERY_TOKEN_FILE: 'A file with the token that the command line sends.',
  ROOKERY_TENANT: 'The tenant that the command line names, when authentication is off.',
} as const;

/** `jwt.secretFile` → `ROOKERY_JWT_SECRET_FILE`. */
export function variableOf(settingPath: string): string {
  const words = settingPath.replaceAll('.', '_').replace(/([a-z0-9])([A-Z])/g, '$1_$2');
  return `ROOKERY_${words.toUpperCase()}`;
}
