import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';

/** The program of docs/clients.md that is to stand in this file, and what it says that it prints. */
export function programOfPage(file: string): { readonly source: string; readonly prints: string } {
  const page = readFileSync(join(ROOT, 'docs/clients.md'), 'utf8');
  const source = page.split('```').find(block => block.split('\n', 1)[0]?.endsWith(`file=${file}`));
  if (source === undefined) throw new Error(`docs/clients.md has no block file=${file}`);
  const program = source.slice(source.indexOf('\n') + 1);
  const prints = [...program.matchAll(/(?:#|\/\/) → (.*)/g)].map(([, line]) => `${line}\n`);
  return { source: program, prints: prints.join('') };
}

/** Passes everything on to a service, but breaks off before the first answer to a create comes back: it was done, and nobody was told. */
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
