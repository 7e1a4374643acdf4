import { execFileSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { CLEAN_ROOT_MAKE_MS, cleanRoot, onCleanMachine } from '../parts/clean-machine.ts';
import { missingTerms } from '../parts/package-terms.ts';
import { describeWith } from '../probe.ts';
import { withToken } from '../walks/machine-walks.ts';
import { readTryIt } from '../walks/readme.ts';

/** Timeout of writing thousands of files; the machine has its own limit. */
const INSTALL_MS = 600_000;

/** The commands of "Try it" in README.md. */
const { commands: COMMANDS } = readTryIt();
const EXPECTED = COMMANDS.flatMap(({ expected }) => expected ?? []);
const LINES = COMMANDS.map(({ line }) => line).join('\n');
/** The same commands for the service of the Debian package, which requires a token. */
const LINES_WITH_TOKEN = COMMANDS.map(withToken('$(cat /var/lib/rookery/local-token)'))
  .map(({ line }) => line)
  .join('\n');

describeWith(['root', 'namespaces'], 'Rookery on a clean Debian', () => {
  let packages: string;
  beforeAll(async () => {
    packages = mkdtempSync(join(tmpdir(), 'rookery-packages-'));
    await cleanRoot();
  }, CLEAN_ROOT_MAKE_MS);
  afterAll(() => rmSync(packages, { recursive: true, force: true }));

  /** Runs a script and returns the path that it prints last. */
  function make(script: string): string {
    const args = ['--import', 'tsx', join(ROOT, 'scripts', script), packages];
    return execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' }).trim().split('\n').at(-1) ?? '';
  }

  test(
    'the npm package runs without a registry or a compiler, for root and other users, from any directory',
    async () => {
      const tarball = make('package-npm.ts');
      const names = execFileSync('tar', ['tzf', tarball], { encoding: 'utf8', maxBuffer: 1 << 24 }).split('\n');
      const own = names.filter(name => !name.startsWith('package/node_modules/'));
      expect(
        own.filter(name => /\.test\.|^package\/(src|test|scripts|bench|docs\/decisions)\/|\/tests/.test(name)),
      ).toEqual([]);
      const unpacked = mkdtempSync(join(packages, 'npm-'));
      execFileSync('tar', ['xzf', tarball, '-C', unpacked]);
      expect(missingTerms({ library: join(unpacked, 'package'), hasNode: false })).toEqual([]);
      expect(own).toEqual(
        expect.arrayContaining(
          [
            'dist/main.js',
            'dist/dashboard/index.html',
            'openapi/frontend.json',
            'docs/README.md',
            'examples/hello/handler.py',
            'THIRD-PARTY-NOTICES',
          ].map(name => `package/${name}`),
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
      for (const text of EXPECTED) expect(linesWith(output, text), text).toBe(2);
      expect(output).toContain('"Hello, Lin!"');
    },
    INSTALL_MS,
  );

  test(
    'the Debian package starts a hardened service, whose agents survive a restart, and a purge keeps the data',
    async () => {
      const deb = make('package-deb.ts');
      const unpacked = mkdtempSync(join(packages, 'deb-'));
      execFileSync('dpkg-deb', ['--extract', deb, unpacked]);
      const library = join(unpacked, 'usr/lib/rookery');
      const documents = join(unpacked, 'usr/share/doc/rookery');
      // Debian has the text of the Apache License once for all packages.
      expect(missingTerms({ library, documents, hasLicence: false, hasNode: true })).toEqual([]);
      const output = await onCleanMachine({
        brought: { '/opt/rookery.deb': deb },
        init: 'systemd',
        script: `
        dpkg --force-unsafe-io --install /opt/rookery.deb
        systemd-analyze verify --man=no rookery.service
        systemctl show rookery.service --property=ActiveState,StatusText,User,Delegate,StartLimitIntervalUSec
        echo "node $(/usr/lib/rookery/bin/node --version)"
        ls /usr/share/man/man1/rookery.1.gz /usr/lib/rookery/docs/README.md
        bash -c 'source /usr/share/bash-completion/completions/rookery; complete -p rookery'
        grep -c -e 'Rich Felker' -e common-licenses/Apache-2.0 /usr/share/doc/rookery/copyright
        rookery doctor --config /etc/rookery/rookery.yaml | grep -A 3 ' dependencies '
        python3 -m compileall -q /usr/lib/rookery/runtimes/python/rookery_runtime
        cd /usr/share/doc/rookery
        rookery agent create stays --code ./examples/hello --handler handler.handle --initializer handler.initialize
        rookery agent invoke stays '{}'
        systemctl restart rookery.service
        rookery agent invoke stays '{"name": "again"}'
        ${LINES_WITH_TOKEN}
        dpkg --purge rookery
        for file in $(grep -ls 'rookery_[z]ygote' /proc/[0-9]*/cmdline); do echo "left: $file"; done
        find / -xdev -path /proc -prune -o -path /opt -prune -o -path /var/lib/rookery -prune -o -name '*rookery*' -printf 'left: %p\\n'
        ls /var/lib/rookery`,
      });
      expect(output).toContain('ActiveState=active\n');
      expect(output).toContain('StatusText=ready frontend=http://127.0.0.1:8888 meta=http://127.0.0.1:31182\n');
      expect(output).toContain('User=rookery\n');
      expect(output).toContain('Delegate=yes\n');
      expect(output).toContain('StartLimitIntervalUSec=0\n');
      expect(output).toMatch(/^node v24\./m);
      expect(output).toMatch(/^complete .*rookery$/m);
      // The clean Debian has neither of the packages that install dependencies of code.
      expect(output).toMatch(/^warn +dependencies +cannot be installed$/m);
      for (const name of ['python3-venv', 'npm']) expect(output).toContain(`apt install ${name}`);
      expect(output).toContain('{"message":"Hello, again!","calls":2}');
      for (const text of EXPECTED) expect(linesWith(output, text), text).toBe(1);
      expect(output).not.toContain('left: ');
      expect(output).toContain('rookery.db');
    },
    INSTALL_MS,
  );
});

/** Returns the number of lines that begin with `text`: curl adds no line feed to an answer. */
function linesWith(output: string, text: string): number {
  return output.split('\n').filter(line => line.startsWith(text)).length;
}

/**
 * Shell functions: `serve` starts a service, `end` ends it, `walk` runs the README's commands with a separate
 * service.
 */
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
  ${LINES}
  end
}
`;
