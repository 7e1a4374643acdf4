import { CliError } from '../shared/exit.ts';
import type { Io, Terminal } from '../shared/io.ts';

/** Reads a line from the terminal without showing the typed text. */
export async function readHidden(io: Io, terminal: Terminal, question: string): Promise<string> {
  io.err.write(question);
  terminal.setRaw(true);
  let typed = '';
  try {
    for await (const chunk of io.stdin as AsyncIterable<Buffer | string>) {
      for (const key of chunk.toString()) {
        if (key === '\r' || key === '\n' || key === '\x04') return typed;
        if (key === '\x03') throw new CliError('Interrupted.');
        typed = key === '\x7f' || key === '\b' ? typed.slice(0, -1) : typed + key;
      }
    }
    return typed;
  } finally {
    terminal.setRaw(false);
    io.err.write('\n');
  }
}
