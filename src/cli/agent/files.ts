import type { Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { followEventBlocks } from '../shared/event-blocks.ts';
import { CliError } from '../shared/exit.ts';
import type { Context, Io } from '../shared/io.ts';
import { printable, printJson } from '../shared/print.ts';
import { resolveAgent } from './records.ts';

interface FileOptions extends ClientOptions {
  readonly namespace: string;
  readonly user?: string;
  readonly json?: boolean;
}

interface WatchOptions extends FileOptions {
  readonly recursive?: boolean;
}

interface FileRecord {
  readonly path: string;
  readonly type: string;
  readonly size: number;
  readonly mode: string;
  readonly modified_at: string;
  readonly owner: string;
  readonly group: string;
  readonly target?: { readonly path: string };
}

/** Adds the commands for single files in a sandbox. */
export function addFiles(agent: Command, { io }: Context): void {
  const files = agent.command('files').summary('describe, rename, remove and watch files in the sandbox of an agent');
  const add = (name: string, summary: string) =>
    files
      .command(name)
      .summary(summary)
      .option('-n, --namespace <namespace>', 'the namespace of the name', 'default')
      .option('-u, --user <account>', 'an account of the sandbox: its home, and the rights of root inside')
      .option('--json', 'print JSON')
      .argument('<agent>', 'the id of the agent, or its name');
  add('stat', 'describe a file or directory')
    .argument('<path>', 'inside the sandbox')
    .action((id, path, options) => statFile(io, id, path, options));
  add('mv', 'rename a file or directory; makes missing directories and replaces a file')
    .argument('<from>', 'the path inside the sandbox')
    .argument('<to>', 'the new path')
    .action((id, from, to, options) => renameFile(io, id, from, to, options));
  add('rm', 'remove files, and directories with all that is in them')
    .argument('<paths...>', 'inside the sandbox')
    .action((id, paths, options) => removeFiles(io, id, paths, options));
  add('watch', 'print the changes in a directory until Ctrl-C')
    .argument('<path>', 'a directory inside the sandbox')
    .option('-r, --recursive', 'also in its directories')
    .action((id, path, options) => watchFiles(io, id, path, options));
  for (const command of files.commands) addClientOptions(command);
}

interface Target {
  readonly client: Client;
  /** `/api/agent/<id>/files` */
  readonly base: string;
}

async function open(io: Io, agent: string, options: FileOptions): Promise<Target> {
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, agent, options.namespace);
  return { client, base: `/api/agent/${encodeURIComponent(id)}/files` };
}

function queryOf(parameters: Readonly<Record<string, string>>, { user }: FileOptions): URLSearchParams {
  return new URLSearchParams({ ...parameters, ...(user === undefined ? {} : { user }) });
}

function show(io: Io, answer: Record<string, unknown>, { json }: FileOptions): void {
  if (json === true) {
    printJson(io, answer);
    return;
  }
  const { path, type, size, mode, modified_at, owner, group, target } = answer.file as FileRecord;
  const name = target === undefined ? path : `${path} -> ${target.path}`;
  io.out.write(
    `${type}  ${mode}  ${printable(owner)}:${printable(group)}  ${size}  ${modified_at}  ${printable(name)}\n`,
  );
}

async function statFile(io: Io, agent: string, path: string, options: FileOptions): Promise<void> {
  const { client, base } = await open(io, agent, options);
  show(io, await client.json('GET', `${base}/stat?${queryOf({ path }, options)}`), options);
}

async function renameFile(io: Io, agent: string, from: string, to: string, options: FileOptions): Promise<void> {
  const { client, base } = await open(io, agent, options);
  const answer = await client.json('POST', `${base}/rename?${queryOf({ from, to }, options)}`);
  if (options.json === true) show(io, answer, options);
}

async function removeFiles(io: Io, agent: string, paths: readonly string[], options: FileOptions): Promise<void> {
  const { client, base } = await open(io, agent, options);
  for (const path of paths) {
    const answer = await client.json('DELETE', `${base}?${queryOf({ path }, options)}`);
    if (options.json === true) printJson(io, answer);
  }
}

/** Prints changes until the user interrupts. */
async function watchFiles(io: Io, agent: string, path: string, options: WatchOptions): Promise<void> {
  const { client, base } = await open(io, agent, options);
  const query = queryOf({ path, recursive: String(options.recursive === true) }, options);
  const stream = { path: `${base}/watch?${query}`, noun: 'watch' };
  await followEventBlocks(io, client, stream, block => showChange(io, block, options.json === true));
}

function showChange(io: Io, block: string, asJson: boolean): void {
  const line = block.split('\n').find(each => each.startsWith('data:'));
  if (line === undefined) return;
  const json = line.slice('data:'.length).trim();
  const change = JSON.parse(json) as { type?: string; name?: string; message?: string };
  if (block.startsWith('event: error')) throw new CliError(`The watch ended: ${printable(change.message ?? '')}.`);
  io.out.write(asJson ? `${json}\n` : `${(change.type ?? '').padEnd(6)}  ${printable(change.name ?? '')}\n`);
}
