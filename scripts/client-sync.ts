import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

/** Replacements that turn a module of Python's asynchronous client into one of the synchronous client. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/\basync (def|with|for)\b/g, '$1'],
  [/\bawait asyncio\.to_thread\((\w+), /g, '$1('],
  [/\bawait /g, ''],
  [/\basyncio\.sleep\b/g, 'time.sleep'],
  [/\bimport asyncio\b/g, 'import time'],
  [/\bwebsockets\.asyncio\b/g, 'websockets.sync'],
  [/\b__a(iter|enter|exit)__\b/g, '__$1__'],
  [/\bAsync([A-Z])/g, '$1'],
  [/\basync_mapped\b/g, 'mapped'],
];

/**
 * Returns a module of Python's synchronous client, made from the asynchronous one so that both stay equal.
 */
export function syncModule(name: string): string {
  const source = readFileSync(join(ROOT, 'clients/python/src/rookery/_async', `${name}.py`), 'utf8');
  const text = WORDS.reduce((done, [from, to]) => done.replaceAll(from, to), source)
    .replaceAll(/\ba(read|close|iter_bytes)\b/g, '$1')
    // Only a module that sleeps needs the import.
    .replace(/^import time\n/m, line => (source.includes('asyncio.sleep') ? line : ''));
  return `# Made by \`npm run generate\` from _async/${name}.py.\n${text}`;
}

/** Returns the module of Python's client that reads type hints: the program of the command line. */
export function hintsModule(): string {
  const program = 'runtimes/python/rookery_build/input_schema.py';
  return `# Made by \`npm run generate\` from ${program}.\n${readFileSync(join(ROOT, program), 'utf8')}`;
}
