import type { Command } from 'commander';
import { isSecretName, SECRET_NAME_RULE } from '../../core/secret.ts';
import { age } from '../../lib/age.ts';
import { forEach } from '../function/meta-call.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import { readHidden, readStdin, readTextFile } from '../shared/input.ts';
import type { Context, Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';

interface SetOptions extends ClientOptions {
  readonly fromFile?: string;
  readonly json?: boolean;
}

interface ListOptions extends ClientOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** A secret of `GET /api/secrets`. */
interface Secret {
  readonly name: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly readable: boolean;
}

/** Adds the command `rookery secret`, which writes, lists and deletes secrets. */
export function register(program: Command, context: Context): void {
  const { io } = context;
  const secret = program
    .command('secret')
    .summary('keep secrets for environments')
    .description(
      'Secrets are values of environment variables that stand in no record, no log and no list: an environment refers to them by name.',
    );
  secret
    .command('set')
    .summary('write a secret')
    .description(
      'Writes a secret. The value comes from a file, from stdin or from a prompt; one newline at its end does not count.\n' +
        'Sandboxes that start from now on have it.\n\n' +
        '  printf %s "$PASSWORD" | rookery secret set db-password\n' +
        '  rookery secret set tls-key --from-file key.pem',
    )
    .argument('<name>', `its name: ${SECRET_NAME_RULE}`)
    .argument('[value]', 'no value: the history of the shell would keep it')
    .option('--from-file <file>', 'the file with the value; else stdin')
    .option('--json', 'print JSON')
    .action(async (name, value, options) => setSecret(io, name, value, options));
  secret
    .command('list')
    .alias('ls')
    .summary('list secrets')
    .description('Lists the names of secrets. Nobody reads a value back.')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print names only')
    .action(async options => listSecrets(io, options));
  secret
    .command('delete')
    .alias('rm')
    .summary('delete secrets')
    .description('Deletes secrets. One that a function, an agent, a job or a schedule refers to stays.')
    .argument('<names...>', 'the secrets')
    .option('--json', 'print JSON')
    .action(async (names, options) => deleteSecrets(io, names, options));
  for (const command of secret.commands) addClientOptions(command);
}

async function setSecret(io: Io, name: string, given: string | undefined, options: SetOptions): Promise<void> {
  const [, first = name] = /^([^=]*)=/.exec(name) ?? [];
  if (given !== undefined || first !== name) {
    throw usageError(
      `The value of a secret is no argument: others can see it. Give it on stdin: printf %s "$VALUE" | rookery secret set ${first}`,
    );
  }
  const path = pathOf(name);
  const text = await readValue(io, name, options);
  const value = text.replace(/\r?\n$/, '');
  if (value === '') throw usageError('The value is empty: give it on stdin, or in a file with --from-file.');
  const client = await Client.open(options, io);
  const answer = await client.json('PUT', path, { body: JSON.stringify({ value }) });
  if (options.json === true) printJson(io, answer.secret);
}

async function readValue(io: Io, name: string, { fromFile }: SetOptions): Promise<string> {
  if (fromFile !== undefined) return await readTextFile(fromFile);
  if (io.terminal !== undefined) return await readHidden(io, io.terminal, `Value of ${name} (not shown): `);
  return await readStdin(io);
}

async function listSecrets(io: Io, options: ListOptions): Promise<void> {
  const client = await Client.open(options, io);
  const secrets = await secretsOfService(client);
  if (options.json === true) printJson(io, secrets);
  else if (options.quiet === true) for (const { name } of secrets) io.out.write(`${name}\n`);
  else printTable(io, COLUMNS, secrets);
}

async function deleteSecrets(
  io: Io,
  names: readonly string[],
  options: ClientOptions & { readonly json?: boolean },
): Promise<void> {
  // Check all names before sending any request.
  names.map(pathOf);
  const client = await Client.open(options, io);
  const deleted: string[] = [];
  await forEach(names, async name => {
    await client.json('DELETE', pathOf(name));
    deleted.push(name);
  }).finally(() => {
    if (options.json === true) printJson(io, { deleted });
  });
}

/** Returns all secrets of the tenant. */
export async function secretsOfService(client: Client): Promise<readonly Secret[]> {
  return (await client.json('GET', '/api/secrets')).secrets as readonly Secret[];
}

const COLUMNS = [
  { title: 'NAME', text: ({ name }: Secret) => name },
  { title: 'AGE', text: (secret: Secret) => age(secret.created_at) },
  { title: 'WRITTEN', text: (secret: Secret) => age(secret.updated_at) },
  { title: '', text: ({ readable }: Secret) => (readable ? '' : 'its key is missing: set it again') },
];

function pathOf(name: string): string {
  if (!isSecretName(name)) {
    throw usageError(`The name of a secret must be ${SECRET_NAME_RULE}, not ${JSON.stringify(name)}.`);
  }
  return `/api/secrets/${encodeURIComponent(name)}`;
}
