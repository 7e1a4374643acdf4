import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

/** What the words of a module of the asynchronous client are in the one that waits. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/\basync (def|with|for)\b/g, '$1'],
  [/\bawait asyncio\.to_thread\((\w+), /g, '$1('],
  [/\bawait /g, ''],
  [/\basyncio\.sleep\b/g, 'time.sleep'],
  [/\bimport asyncio\b/g, 'import time'],
  [/\bwebsockets\.asyncio\b/g, 'websockets.sync'],
  [/\b__a(iter|enter|exit)__\b/g, '__$1__'],
  [/\bAsync([A-Z])/g, '$1'],
];

/** A module of Python's synchronous client, made from the asynchronous one: the two cannot come apart. */
export function syncModule(name: string): string {
  const source = readFileSync(join(ROOT, 'clients/python/src/rookery/_async', `${name}.py`), 'utf8');
  const text = WORDS.reduce((done, [from, to]) => done.replaceAll(from, to), source)
    .replaceAll(/\ba(read|close|iter_bytes)\b/g, '$1')
    // Only what waits needs it.
    .replace(/^import time\n/m, line => (source.includes('asyncio.sleep') ? line : ''));
  return `# Made by \`npm run generate\` from _async/${name}.py.\n${text}`;
}
