import type { Readable } from 'node:stream';
import { messageOf, unavailable } from '../../core/error.ts';
import type { ChildProcess } from '../../lib/child-process.ts';

const MAX_CHARS = 64 * 1024;

/**
 * Reads everything that a child writes to its descriptor 3 until it closes it, up to 64 Ki characters.
 * Returns `''` when the child ended without output. Fails with `unavailable` when the child cannot be run;
 * `who` begins the message.
 */
export function readChildOutput(child: ChildProcess, who: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const said = child.stdio[3] as Readable;
    said.setEncoding('utf8');
    said.on('data', (part: string) => {
      text += part;
      if (text.length > MAX_CHARS) said.destroy();
    });
    said.on('error', reject);
    said.on('close', () => resolve(text));
    child.on('error', error => reject(unavailable(`${who} cannot be run: ${messageOf(error)}`, { cause: error })));
  });
}
