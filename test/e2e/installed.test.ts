import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { CLEAN_ROOT_MAKE_MS, cleanRoot, onCleanMachine } from '../parts/clean-machine.ts';
import { describeWith } from '../probe.ts';

/** Thousands of files are written; the machine has its own bound. */
const INSTALL_MS = 600_000;
const EXPECTED = ['{"message":"Hello, Ada!","calls":1}', '{"message":"Hello, Grace!","calls":2}'];

/** The commands of "A first agent", as they stand in the README. */
const WALK = (/^alias rookery=.*\n((?:.+\n)+?)```$/m.exec(readFileSync(join(ROOT, 'README.md'), 'utf8'))?.[1] ?? '')
  .split('\n')
  .map(line => line.split(/\s*# → /)[0])
  .join('\n');

describeWith(['root', 'namespaces'], 'installed on a clean Debian', () => {
  let packages: string;
  beforeAll(async () => {
    packages = mkdtempSync(join(tmpdir(), 'rookery-packages-'));
    await cleanRoot();
  }, CLEAN_ROOT_MAKE_MS);
  afterAll(() => rmSync(packages, { recursive: true, force: true }));

  /** The path that the script prints last. */
  function make(script: string): string {
    const args = ['--import', 'tsx', join(ROOT, 'scripts', script), packages];
    return execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' }).trim().split('\n').at(-1) ?? '';
  }

  test(
    'npm: without a registry or a compiler, as root and as anybody, from any directory',
    async () => {
      const tarball = make('package-npm.ts');
      const names = execFileSync('tar', ['tzf', tarball], { encoding: 'utf8', maxBuffer: 1 << 24 }).split('\n');
      const own = names.filter(name => !name.startsWith('package/node_modules/'));
      expect(own.filter(name => /\.test\.|^package\/(src|test|scripts|bench|docs)\/|\/tests/.test(name))).toEqual([]);
      expect(own).toEqual(
        expect.arrayContaining(
          ['dist/main.js', 'dist/dashboard/index.html', 'openapi/frontend.json', 'examples/hello/handler.py'].map(
            name => `package/${name}`,
          ),
        ),
      );
      const npm = dirname(dirname(realpathSync(execFileSync('which', ['npm'], { encoding: 'utf8' }).trim())));
      const output = await onCleanMachine({
        brought: { '/usr/local/bin/node': process.execPath, '/opt/npm': npm, '/opt/rookery.tgz': tarball },
        init: 'script',
        script: `
        ${SERVE}
        node /opt/npm/bin/npm-cli.js install --global --offline --no-update-notifier --prefix /usr/local /opt/rookery.tgz
        useradd --create-home ada
        export -f serve end walk
        cd /root && walk
        su ada -s /bin/bash -c 'cd && walk'
        cd / && serve /root/data
        cd "$(mktemp -d)" && rookery init python mine && cd mine && rookery deploy
        rookery agent invoke mine '{"name": "Lin"}'
        rookery agent delete mine
        end`,
      });
      for (const line of EXPECTED) expect(output.split(line)).toHaveLength(3);
      expect(output).toContain('"Hello, Lin!"');
    },
    INSTALL_MS,
  );

  test(
    'Debian: its service is hardened and ready under systemd, a restart keeps agents, and a purge leaves the data alone',
    async () => {
      const output = await onCleanMachine({
        brought: { '/opt/rookery.deb': make('package-deb.ts') },
        init: 'systemd',
        script: `
        dpkg --force-unsafe-io --install /opt/rookery.deb
        systemd-analyze verify rookery.service
        systemctl show rookery.service --property=ActiveState,StatusText,User
        cd /usr/share/doc/rookery
        rookery agent create stays --code ./examples/hello --handler handler.handle --initializer handler.initialize
        rookery agent invoke stays '{}'
        systemctl restart rookery.service
        rookery agent invoke stays '{"name": "again"}'
        ${WALK}
        dpkg --purge rookery
        for file in $(grep -ls 'rookery_[z]ygote' /proc/[0-9]*/cmdline); do echo "left: $file"; done
        find / -xdev -path /proc -prune -o -path /opt -prune -o -path /var/lib/rookery -prune -o -name '*rookery*' -printf 'left: %p\\n'
        ls /var/lib/rookery`,
      });
      expect(output).toContain('ActiveState=active\n');
      expect(output).toContain('StatusText=ready frontend=http://127.0.0.1:8888 meta=http://127.0.0.1:31182\n');
      expect(output).toContain('User=rookery\n');
      expect(output).toContain('{"message":"Hello, again!","calls":2}');
      for (const line of EXPECTED) expect(output).toContain(line);
      expect(output).not.toContain('left: ');
      expect(output).toContain('rookery.db');
    },
    INSTALL_MS,
  );
});

/** `serve` starts a service that is ready, `end` ends it, `walk` is the README's with a service of its own. */
const SERVE = `
serve() {
  # The one before has said so in the same file.
  : >"$1.out"
  rookery serve --data-dir "$1" >"$1.out" 2>"$1.err" & server=$!
  until grep -q ^ready "$1.out"; do kill -0 $server || { cat "$1.err"; exit 1; }; sleep 0.1; done
}
end() { kill $server; wait $server; }
walk() {
  set -euo pipefail
  cp -r /usr/local/lib/node_modules/rookery/examples .
  serve "$PWD/data"
  ${WALK}
  end
}
`;
