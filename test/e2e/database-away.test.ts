import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { describeWith } from '../probe.ts';

/** Proxy to PostgreSQL that fails at connection number `most` + 1: it ends all connections and stops. */
class DyingServer implements Disposable {
  readonly #open = new Set<Socket>();
  readonly #server;
  #seen = 0;

  constructor(target: URL, most: number) {
    this.#server = createServer(socket => {
      this.#seen += 1;
      const up = connect(Number(target.port), target.hostname);
      for (const each of [socket, up]) {
        this.#open.add(each);
        each.on('error', () => undefined).on('close', () => void [socket, up].map(one => one.destroy()));
      }
      socket.pipe(up).pipe(socket);
      if (this.#seen > most) this[Symbol.dispose]();
    });
  }

  async listen(): Promise<number> {
    await new Promise<void>(resolve => this.#server.listen(0, '127.0.0.1', resolve));
    return (this.#server.address() as { port: number }).port;
  }

  [Symbol.dispose](): void {
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }
}

describeWith(['postgres'], 'a replica that starts', () => {
  let postgres: TestPostgres;
  let directory: string;
  beforeAll(async () => {
    postgres = await startPostgres();
    directory = mkdtempSync(join(tmpdir(), 'rookery-away-'));
    writeFileSync(join(directory, 'secret'), 's'.repeat(32), { mode: 0o600 });
  }, 120_000);
  afterAll(async () => {
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  test.each([1, 2, 3])(
    'a replica exits with an error message when PostgreSQL fails after %i connections of its start',
    async most => {
      const url = new URL(await postgres.database());
      using dying = new DyingServer(new URL(url), most);
      url.port = String(await dying.listen());
      const settings = { 'storage.url': url.href, 'cluster.secretFile': join(directory, 'secret') };
      const { code, output } = await run(
        process.execPath,
        [
          ...[join(ROOT, 'dist/main.js'), 'serve', '--data-dir', join(directory, `data-${most}`)],
          ...['--port', '0', '--meta-port', '0', '--set', 'cluster.listen=127.0.0.1:0'],
          ...Object.entries(settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]),
        ],
        { capture: true, seconds: 60 },
      );
      expect(output.trim().split('\n').at(-1)).toMatch(/^The service could not start: the database /);
      expect(code).toBe(1);
    },
  );
});
