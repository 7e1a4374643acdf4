import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { cli, json, StubService } from '../../test/parts/cli.ts';
import { SETTINGS } from '../config/settings.ts';
import { manPage } from './man-page.ts';
import { createWholeProgram } from './program.ts';
import type { Io } from './shared/io.ts';

describe('help and usage errors', () => {
  test('--help is printed to stdout with exit code 0', async () => {
    const ran = await cli(['--help']);
    expect(ran).toMatchObject({ code: 0, err: '' });
    for (const noun of ['serve', 'agent', 'token', 'doctor', 'completion']) expect(ran.out).toContain(`  ${noun} `);
  });

  test.each([
    [['help'], ['--help']],
    [
      ['help', 'agent'],
      ['agent', '--help'],
    ],
    [
      ['help', 'agent', 'create'],
      ['agent', 'create', '--help'],
    ],
    [
      ['help', 'agent', 'rm'],
      ['agent', 'delete', '--help'],
    ],
    [
      ['help', 'job', 'schedule', 'create'],
      ['job', 'schedule', 'create', '--help'],
    ],
  ])('the command line %j prints the same as %j', async (args, same) => {
    const ran = await cli(args);
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(ran.out).toBe((await cli(same)).out);
  });

  test('every help text fits 80 columns', async () => {
    const waiting: string[][] = [[]];
    for (let args = waiting.pop(); args !== undefined; args = waiting.pop()) {
      const whole = await cli([...args, '--help'], { columns: 80 });
      // The table of settings is longer, because it is read in a pager.
      const out = whole.out.split('Every setting can be given')[0] ?? '';
      // Examples must stay on one line, so that they can be copied.
      const long = out.split('\n').filter(line => line.length > 80 && !/^ {2}(rookery|tar) /.test(line));
      expect(long, args.join(' ')).toEqual([]);
      const commands = out.split(/^Commands:$/m)[1]?.split(/^\S/m)[0] ?? '';
      for (const [, name = ''] of commands.matchAll(/^ {2}([a-z-]+)/gm))
        if (name !== 'help') waiting.push([...args, name]);
    }
  });

  test('help names an unknown command, with exit code 2', async () => {
    const ran = await cli(['help', 'agent', 'nosuch']);
    expect(ran).toMatchObject({ code: 2, out: '', err: expect.stringContaining('no command "agent nosuch"') });
  });

  test('rookery without a command prints the help with exit code 2', async () => {
    const ran = await cli([]);
    expect(ran).toMatchObject({ code: 2, out: '', err: expect.stringContaining('Usage: rookery') });
  });

  test.each([
    [['serv'], 'Did you mean serve?'],
    [['agent', 'ge'], 'Did you mean get?'],
    [['agent', 'restrt'], 'Did you mean restart?'],
    [['agent', 'get'], "missing required argument 'agent'"],
    [['agent', 'list', '--jsn'], 'Did you mean --json?'],
  ])('the command line %j is refused with a hint and exit code 2', async (args, hint) => {
    const ran = await cli(args);
    expect(ran).toMatchObject({ code: 2, out: '' });
    expect(ran.err).toContain(hint);
  });

  test('an unknown command gets no suggestion when no command has a similar name', async () => {
    expect((await cli(['foo'])).err).toBe("error: unknown command 'foo'\n(--help lists the commands and options)\n");
  });

  test.each([
    ["--token <jwt>' argument ''", ['agent', 'list', '--token', '']],
    ["--code <dir>' argument ''", ['agent', 'create', 'a', '--code', '', '--handler', 'app.handle']],
    ["'' is invalid for argument 'agents'", ['agent', 'rm', 'a', '']],
    ["'' is invalid for argument 'name'", ['agent', 'create', '', '--code', '.']],
  ])('an empty value is refused with exit code 2: %s', async (named, args) => {
    const ran = await cli([...args]);
    expect(ran).toMatchObject({ code: 2, out: '' });
    expect(ran.err).toContain(named);
    expect(ran.err).toContain('It is empty: is a variable unset?');
  });

  test('--version prints the version', async () => {
    expect((await cli(['--version'])).out).toBe('1.2.3\n');
  });

  test('serve --help names every setting', async () => {
    const { out } = await cli(['serve', '--help']);
    for (const path of Object.keys(SETTINGS)) expect(out).toContain(`  ${path} `);
  });
});

describe('serve and doctor', () => {
  test.each(['serve', 'doctor'])(
    'the command %s prints each problem of the configuration on a separate line, with exit code 78',
    async command => {
      const environment = { ROOKERY_HOST: '0.0.0.0' };
      const ran = await cli([command, '--port', 'x', '--set', 'jwt.isuer=me'], { environment });
      expect(ran.code).toBe(78);
      expect(ran.out).toBe('');
      expect(ran.err.trimEnd().split('\n')).toEqual([
        'jwt.isuer is not a setting (--set). Did you mean jwt.issuer?',
        'port must be a whole number from 0 to 65535, not "x" (--port).',
        expect.stringContaining('host is 0.0.0.0, which is not a loopback address'),
      ]);
    },
  );
});

test('recover refuses a data directory that does not exist, and does not make it', async () => {
  const dataDir = join(tmpdir(), `rookery-none-${process.pid}`);
  const ran = await cli(['recover', '--data-dir', dataDir]);
  expect(ran).toMatchObject({ code: 2, out: '', err: expect.stringContaining('Name it with --data-dir.') });
  expect(existsSync(dataDir)).toBe(false);
});

test('deploy without a file prints the command that makes one', async () => {
  const ran = await cli(['deploy', '-f', '/nowhere/rookery.yaml', '--address', '127.0.0.1:1']);
  expect(ran.code).toBe(2);
  expect(ran.err).toBe(
    'The file /nowhere/rookery.yaml cannot be read: it does not exist. "rookery init" makes one; -f names another.\n',
  );
});

describe('completion', () => {
  test("every shell's script contains the commands and options", async () => {
    for (const shell of ['bash', 'zsh', 'fish']) {
      const { out, code } = await cli(['completion', shell]);
      expect(code).toBe(0);
      for (const word of ['serve', 'doctor', 'restart', 'secret-file', 'idempotency-key']) expect(out).toContain(word);
    }
  });

  test('an unknown shell is refused with exit code 2', async () => {
    expect(await cli(['completion', 'tcsh'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('bash, zsh, fish'),
    });
  });

  test.each([
    ['rookery a', 'agent'],
    ['rookery agent rest', 'restart'],
    ['rookery agent exec --wo', '--workdir'],
    ['rookery agent rm --gr', '--grace'],
    ['rookery token create --ro', '--role'],
    ['rookery completion f', 'fish'],
    ['rookery job schedule d', 'delete'],
  ])('bash completes %j to %j', async (line, expected) => {
    const dir = mkdtempSync(join(tmpdir(), 'rookery-completion-'));
    try {
      const { out } = await cli(['completion', 'bash']);
      writeFileSync(join(dir, 'script'), out);
      const ask = `source ${dir}/script; COMP_WORDS=(${line}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _rookery; echo "\${COMPREPLY[*]}"`;
      const answer = execFileSync('bash', ['--norc', '-c', ask], { encoding: 'utf8', cwd: dir });
      expect(answer.trim()).toBe(expected);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test.each([
    ['rookery agent get h', 'hello'],
    ['rookery logs h', 'hello'],
    ['rookery function get f', 'fn'],
    ['rookery secret rm s', 'sec'],
  ])('bash completes the name in %j to %j', async (line, expected) => {
    await using service = await StubService.start(({ url }, response) => {
      if (url.startsWith('/api/agent')) json(response, 200, { instances: [{ namespace: 'default', name: 'hello' }] });
      else if (url === '/api/secrets') json(response, 200, { secrets: [{ name: 'sec' }] });
      else json(response, 200, { code: 0, result: { functions: [{ name: 'fn' }] } });
    });
    const environment = { ROOKERY_ADDRESS: service.address, ROOKERY_META_ADDRESS: service.address };
    const dir = mkdtempSync(join(tmpdir(), 'rookery-completion-'));
    try {
      writeFileSync(join(dir, 'script'), (await cli(['completion', 'bash'])).out);
      for (const kind of ['agent', 'function', 'secret']) {
        writeFileSync(join(dir, kind), (await cli(['complete-names', kind], { environment })).out);
      }
      const ask = `rookery() { cat "${dir}/$2"; }; source ${dir}/script; COMP_WORDS=(${line}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _rookery; echo "\${COMPREPLY[*]}"`;
      const answer = execFileSync('bash', ['--norc', '-c', ask], { encoding: 'utf8', cwd: dir });
      expect(answer.trim()).toBe(expected);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test('complete-names prints nothing when no service answers', async () => {
    const environment = { ROOKERY_ADDRESS: 'http://127.0.0.1:1' };
    expect(await cli(['complete-names', 'agent'], { environment })).toEqual({ code: 0, out: '', err: '' });
  });

  test('the man page contains the commands and options', async () => {
    const context = { io: { environment: {} } as Io, version: '1.2.3', exitCode: 0 };
    const page = manPage(await createWholeProgram(context), '1.2.3', new Command());
    for (const word of ['rookery agent create', '\\-\\-idempotency\\-key', '.SH EXIT STATUS'])
      expect(page).toContain(word);
    expect(page).not.toContain('complete\\-names');
  });
});
