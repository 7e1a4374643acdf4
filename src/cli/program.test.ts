import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { cli } from '../../test/parts/cli.ts';
import { SETTINGS } from '../config/settings.ts';

describe('help and mistakes', () => {
  test('--help goes to stdout and is exit code 0', async () => {
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
  ])('%j is the same as %j', async (args, same) => {
    const ran = await cli(args);
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(ran.out).toBe((await cli(same)).out);
  });

  test('every help fits 80 columns', async () => {
    const waiting: string[][] = [[]];
    for (let args = waiting.pop(); args !== undefined; args = waiting.pop()) {
      const whole = await cli([...args, '--help'], { columns: 80 });
      // The table of settings is for a pager.
      const out = whole.out.split('Every setting can be given')[0] ?? '';
      // Examples are to be copied, and stand on lines of their own.
      const long = out.split('\n').filter(line => line.length > 80 && !/^ {2}(rookery|tar) /.test(line));
      expect(long, args.join(' ')).toEqual([]);
      const commands = out.split(/^Commands:$/m)[1]?.split(/^\S/m)[0] ?? '';
      for (const [, name = ''] of commands.matchAll(/^ {2}([a-z-]+)/gm))
        if (name !== 'help') waiting.push([...args, name]);
    }
  });

  test('help of a command that there is not names it: exit code 2', async () => {
    const ran = await cli(['help', 'agent', 'nosuch']);
    expect(ran).toMatchObject({ code: 2, out: '', err: expect.stringContaining('no command "agent nosuch"') });
  });

  test('no command at all shows the help: exit code 2', async () => {
    const ran = await cli([]);
    expect(ran).toMatchObject({ code: 2, out: '', err: expect.stringContaining('Usage: rookery') });
  });

  test.each([
    [['serv'], 'Did you mean serve?'],
    [['agent', 'restrt'], 'Did you mean restart?'],
    [['agent', 'get'], "missing required argument 'agent'"],
    [['agent', 'list', '--jsn'], 'Did you mean --json?'],
  ])('%j is a mistake with a hint: exit code 2', async (args, hint) => {
    const ran = await cli(args);
    expect(ran).toMatchObject({ code: 2, out: '' });
    expect(ran.err).toContain(hint);
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
    '%s tells every problem of the configuration on its own line: exit code 78',
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

describe('completion', () => {
  test('every shell gets every command and option', async () => {
    for (const shell of ['bash', 'zsh', 'fish']) {
      const { out, code } = await cli(['completion', shell]);
      expect(code).toBe(0);
      for (const word of ['serve', 'doctor', 'restart', 'secret-file', 'idempotency-key']) expect(out).toContain(word);
    }
  });

  test('an unknown shell is a mistake', async () => {
    expect(await cli(['completion', 'tcsh'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('bash, zsh, fish'),
    });
  });

  test.each([
    ['rookery a', 'agent'],
    ['rookery agent re', 'restart'],
    ['rookery agent exec --wo', '--workdir'],
    ['rookery agent rm --gr', '--grace'],
    ['rookery token create --ro', '--role'],
    ['rookery completion f', 'fish'],
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
});
