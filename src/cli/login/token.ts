import type { Command } from 'commander';
import { isTenant, TENANT_RULE } from '../../core/tenant.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { parseDurationMs } from '../shared/units.ts';

const ROLES = ['developer', 'user', 'viewer'];

interface CreateOptions extends ClientOptions {
  readonly tenant: string;
  readonly e2b?: boolean;
  readonly aws?: boolean;
  readonly role?: string;
  readonly ttl: string;
  readonly secretFile?: string;
  readonly issuer?: string;
  readonly audience?: string;
}

/** Adds the command `rookery token`, which signs tokens with the secret of a service. */
export function register(program: Command, context: Context): void {
  const token = program
    .command('token')
    .summary('make tokens')
    .description('Tokens for a service with authentication.');
  const create = token
    .command('create')
    .summary('print a token')
    .description(
      'Prints a signed token (HS256) for the service that knows the same secret. Nothing is sent anywhere.\n' +
        'With --e2b, the service makes and prints an API key for clients of the E2B protocol:\n\n' +
        '  export E2B_API_KEY=$(rookery token create --e2b)\n\n' +
        'With --aws, the service makes a key for clients of AWS Lambda, and the command prints variables for a shell:\n\n' +
        '  eval "$(rookery token create --aws)"',
    )
    .option('--tenant <tenant>', 'whom it speaks for', 'default')
    .option(
      '--role <role>',
      'developer (everything), user (invoke and read) or viewer (read); default: none, for which jwt.defaultRole of the service counts',
    )
    .option('--ttl <time>', 'how long it holds: 90s, 15m, 1h, 7d', '1h')
    .option('--secret-file <file>', 'the file with the secret; else $ROOKERY_JWT_SECRET_FILE or $ROOKERY_JWT_SECRET')
    .option('--e2b', 'make an API key for E2B clients, which the service stores; it does not expire')
    .option('--aws', 'make a key for clients of AWS Lambda; it does not expire')
    .option('--issuer <text>', 'the claim iss; else $ROOKERY_JWT_ISSUER')
    .option('--audience <text>', 'the claim aud; else $ROOKERY_JWT_AUDIENCE')
    .action(async (options: CreateOptions, command: Command) => {
      const isDefault = command.getOptionValueSource('tenant') === 'default';
      if (options.e2b === true && options.aws === true) throw usageError('Give --e2b or --aws, not both.');
      if (options.e2b === true || options.aws === true) await createKey(context.io, options, isDefault);
      else await createToken(context.io, options);
    });
  addClientOptions(create);
}

/** Lets the service make a key, and prints it: an API key alone, or an AWS key as variables of a shell. */
async function createKey(io: Io, { tenant, role, ...options }: CreateOptions, isDefault: boolean): Promise<void> {
  const kind = options.aws === true ? 'aws' : 'e2b';
  checkTenantAndRole(tenant, role);
  for (const name of ['secretFile', 'issuer', 'audience'] as const) {
    if (options[name] !== undefined)
      throw usageError(`--secret-file, --issuer and --audience do not apply to --${kind}.`);
  }
  const client = await Client.open(isDefault ? options : { ...options, tenant }, io);
  const body = JSON.stringify(role === undefined ? {} : { role });
  const {
    value,
    access_key_id: id,
    secret_access_key: secret,
  } = await client.json('POST', `/api/${kind}/keys`, { body });
  io.out.write(
    kind === 'e2b' ? `${value}\n` : `export AWS_ACCESS_KEY_ID=${id}\nexport AWS_SECRET_ACCESS_KEY=${secret}\n`,
  );
}

function checkTenantAndRole(tenant: string, role: string | undefined): void {
  if (!isTenant(tenant)) {
    throw usageError(`--tenant must be ${TENANT_RULE}, not ${JSON.stringify(tenant)}.`);
  }
  if (role !== undefined && !ROLES.includes(role))
    throw usageError(`--role must be one of ${ROLES.join(', ')}, not ${JSON.stringify(role)}.`);
}

async function createToken(io: Io, options: CreateOptions): Promise<void> {
  checkTenantAndRole(options.tenant, options.role);
  const ttlMs = parseDurationMs(options.ttl, '--ttl');
  if (ttlMs < 1000) throw usageError('--ttl must be at least 1s: times in tokens are whole seconds.');
  const secret = await readSecret(io, options.secretFile);
  const issuer = options.issuer ?? io.environment.ROOKERY_JWT_ISSUER;
  const audience = options.audience ?? io.environment.ROOKERY_JWT_AUDIENCE;

  const { SignJWT } = await import('jose');
  const issuedAt = Math.floor(Date.now() / 1000);
  const jwt = new SignJWT(options.role === undefined ? {} : { role: options.role })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(options.tenant)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + Math.floor(ttlMs / 1000));
  if (issuer) jwt.setIssuer(issuer);
  if (audience) jwt.setAudience(audience);
  io.out.write(`${await jwt.sign(secret)}\n`);
}

async function readSecret({ environment }: Io, flag: string | undefined): Promise<Uint8Array> {
  const { checkSecret, readSecretFile } = await import('../../config/secret-keys.ts');
  const file = flag ?? environment.ROOKERY_JWT_SECRET_FILE;
  const text = environment.ROOKERY_JWT_SECRET;
  if (!file && !text) {
    throw usageError(
      'There is no secret to sign with: give --secret-file. A new one: openssl rand -base64 48 > jwt.secret',
    );
  }
  const name = flag === undefined ? 'ROOKERY_JWT_SECRET_FILE' : '--secret-file';
  const secret = file
    ? await readSecretFile(name, file)
    : checkSecret('ROOKERY_JWT_SECRET', new TextEncoder().encode(text));
  if ('problem' in secret) throw new CliError(secret.problem, EXIT.config);
  return secret.value;
}
