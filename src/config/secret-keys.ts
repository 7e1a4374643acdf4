import { promisify } from 'node:util';
import { readSecretKeys, SECRET_KEY_RULE } from '../core/secret.ts';
import { execFile } from '../lib/child-process.ts';
import { checkPrivate, readWhole } from './secret-file.ts';
import type { Values } from './settings.ts';

const SETTINGS = ['secrets.key', 'secrets.keyFile', 'secrets.keyCommand'] as const;
const COMMAND_MS = 30_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

interface ReadKeys {
  /** Null: no setting names keys, or the settings have problems. */
  readonly keys: readonly Uint8Array[] | null;
  readonly problems: readonly string[];
}

/**
 * Reads the keys of secrets from the setting that names them. Problems contain neither keys nor the output of
 * a command.
 */
export async function readSecretKeySettings(values: Values): Promise<ReadKeys> {
  const given = SETTINGS.filter(path => values[path] !== null);
  const [name] = given;
  if (name === undefined) return { keys: null, problems: [] };
  if (given.length > 1) {
    return wrong(`${given.join(' and ')} are set: the keys of secrets come from one place, so set only one of them.`);
  }
  const value = values[name] as string;
  const text = await textOf(name, value);
  if ('problem' in text) return wrong(text.problem);
  const keys = readSecretKeys(text.value);
  return keys === null ? wrong(`${text.where} must hold ${SECRET_KEY_RULE}.`) : { keys, problems: [] };
}

async function textOf(
  name: (typeof SETTINGS)[number],
  value: string,
): Promise<{ readonly value: string; readonly where: string } | { readonly problem: string }> {
  if (name === 'secrets.key') return { value, where: name };
  if (name === 'secrets.keyFile') {
    const checked = await checkPrivate(name, value);
    if ('problem' in checked) return checked;
    const read = await readWhole(name, value);
    return 'problem' in read ? read : { value: read.value.toString('utf8'), where: `${name}: ${value}` };
  }
  try {
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', value], {
      timeout: COMMAND_MS,
      killSignal: 'SIGKILL',
      maxBuffer: MAX_OUTPUT_BYTES,
    });
    return { value: stdout, where: `${name}: what the command prints` };
  } catch (error) {
    const { code, signal } = error as { code?: unknown; signal?: unknown };
    return { problem: `${name}: the command failed (${signal ? `ended by ${signal}` : `exit code ${code}`}).` };
  }
}

function wrong(problem: string): ReadKeys {
  return { keys: null, problems: [problem] };
}
