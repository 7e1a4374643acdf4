import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { downloadTo } from './cp-download.ts';
import { CopyProgress } from './cp-remote.ts';
import { uploadFrom } from './cp-upload.ts';
import { resolveAgent } from './records.ts';

interface CopyOptions extends ClientOptions {
  readonly namespace: string;
}

/** Copies files and whole directories between this machine and a sandbox. */
export async function copyFiles(io: Io, source: string, target: string, options: CopyOptions): Promise<void> {
  const from = parsePlace(source);
  const to = parsePlace(target);
  if ((from.agent === null) === (to.agent === null)) {
    throw usageError('Name one path here (or "-") and one in an agent, written <agent>:<path>.');
  }
  const client = await Client.open(options, io);
  const agent = (from.agent ?? to.agent) as string;
  const id = await resolveAgent(client, agent, options.namespace);
  const remote = { client, agent, base: `/api/agent/${encodeURIComponent(id)}/files` };
  const progress = new CopyProgress(io);
  try {
    if (from.agent === null) await uploadFrom(io, remote, from.path, to.path, progress);
    else await downloadTo(io, remote, from.path, to.path, progress);
  } finally {
    progress.end();
  }
}

interface Place {
  /** Null: on this machine. */
  readonly agent: string | null;
  readonly path: string;
}

/** Parses `name:path`. A text that begins with a slash or a dot is a path of this machine. */
function parsePlace(text: string): Place {
  const match = /^([^./:][^/:]*):(.*)$/s.exec(text);
  if (!match) {
    if (text === '') throw usageError('A path must not be empty.');
    return { agent: null, path: text };
  }
  const [, agent = '', path = ''] = match;
  if (path === '') throw usageError(`The path in the agent is missing: ${agent}:<path>.`);
  return { agent, path };
}
