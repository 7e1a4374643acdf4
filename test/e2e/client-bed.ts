import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';

/** Returns the program that a page shows for this file, and the output that the page shows. */
export function programOfPage(
  file: string,
  page = 'docs/guides/clients.md',
): { readonly source: string; readonly prints: string } {
  const source = readFileSync(join(ROOT, page), 'utf8')
    .split('```')
    .find(block => block.split('\n', 1)[0]?.endsWith(`file=${file}`));
  if (source === undefined) throw new Error(`${page} has no block file=${file}`);
  const program = source.slice(source.indexOf('\n') + 1);
  const prints = [...program.matchAll(/(?:#|\/\/) → (.*)/g)].map(([, line]) => `${line}\n`);
  return { source: program, prints: prints.join('') };
}

/**
 * Starts a proxy that drops the first answer to a create: the agent exists, but the client gets no answer.
 */
export async function startLossyProxy(target: string): Promise<{ url: string; lost: () => number; close: () => void }> {
  let lost = 0;
  const proxy = createServer((asked, answer) => {
    const { method, headers, url = '/' } = asked;
    const passed = request(
      new URL(url, target),
      { method, headers: { ...headers, host: new URL(target).host } },
      got => {
        if (method === 'POST' && url === '/api/agent' && lost === 0) {
          lost += 1;
          got.resume();
          asked.socket.destroy();
          return;
        }
        answer.writeHead(got.statusCode ?? 502, got.headers);
        got.pipe(answer);
      },
    );
    passed.on('error', () => asked.socket.destroy());
    asked.pipe(passed);
  });
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    lost: () => lost,
    close: () => {
      proxy.close();
      proxy.closeAllConnections();
    },
  };
}
