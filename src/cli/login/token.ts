import type { Command } from 'commander';
import { isTenant, TENANT_RULE } from '../../core/tenant.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { parseDurationMs } from '../shared/units.ts';

const ROLES = ['developer', 'user', 'viewer'];

interface CreateOptions {
  readonly tenant: string;
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
  token
    .command('create')
    .description('Prints a signed token (HS256) for the service that knows the same secret. Nothing is sent anywhere.')
    .option('--tenant <tenant>', 'whom it speaks for', 'default')
    .option(
      '--role <role>',
      'developer (everything), user (invoke and read) or viewer (read); default: none, for which jwt.defaultRole of the service counts',
    )
    .option('--ttl <time>', 'how long it holds: 90s, 15m, 1h, 7d', '1h')
    .option('--secret-file <file>', 'the file with the secret; else $ROOKERY_JWT_SECRET_FILE or $ROOKERY_JWT_SECRET')
    .option('--issuer <text>', 'the claim iss; else $ROOKERY_JWT_ISSUER')
    .option('--audience <text>', 'the claim aud; else $ROOKERY_JWT_AUDIENCE')
    .action(async (options: CreateOptions) => createToken(context.io, options));
}

async function createToken(io: Io, options: CreateOptions): Promise<void> {
  if (!isTenant(options.tenant)) {
    throw usageError(`--tenant must be ${TENANT_RULE}, not ${JSON.stringify(options.tenant)}.`);
  }
  if (options.role !== undefined && !ROLES.includes(options.role))
    throw usageError(`--role must be one of ${ROLES.join(', ')}, not ${JSON.stringify(options.role)}.`);
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
