import { downloadTo } from './agent-cp-download.ts';
import { CopyProgress } from './agent-cp-progress.ts';
import { uploadFrom } from './agent-cp-upload.ts';
import { resolveAgent } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { usageError } from './exit.ts';
import type { Io } from './io.ts';

interface CopyOptions extends ClientOptions {
  readonly namespace: string;
}

/** Copies files between this machine and a sandbox, directories with all that is in them. */
export async function copyFiles(io: Io, source: string, target: string, options: CopyOptions): Promise<void> {
  const from = parsePlace(source);
  const to = parsePlace(target);
  if ((from.agent === null) === (to.agent === null)) {
    throw usageError('One of both must be in an agent, written <agent>:<path>, and the other one here (or "-").');
  }
  const client = await Client.open(options, io);
  const agent = (from.agent ?? to.agent) as string;
  const id = await resolveAgent(client, agent, options.namespace);
  const remote = { client, base: `/api/agent/${encodeURIComponent(id)}/files` };
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

/** `name:path`; what begins with a slash or a dot is a path of this machine, whatever follows. */
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
