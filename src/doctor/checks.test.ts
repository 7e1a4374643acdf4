import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Config } from '../config/config.ts';
import {
  checkCollector,
  checkDatabase,
  checkDataDir,
  checkNode,
  checkPort,
  driverFinding,
  pythonFinding,
} from './checks.ts';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-doctor-test-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

test.each([
  ['v18.20.0', 'fail'],
  ['v20.18.3', 'fail'],
  ['v20.19.0', 'ok'],
  ['v24.1.0', 'ok'],
])('checkNode reports for Node %s the status %s', (version, status) => {
  expect(checkNode(version).status).toBe(status);
});

describe('the check of the trace collector', () => {
  test('checkCollector sends an empty export and reports the answer of the collector', async () => {
    expect(await checkCollector(null)).toMatchObject({ status: 'ok', text: 'off: tracing.endpoint is not set' });
    let answers = 200;
    const server = createHttpServer((request, response) => {
      request.resume().on('end', () => response.writeHead(request.method === 'POST' ? answers : 405).end());
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`;
    expect(await checkCollector(url)).toEqual({ name: 'traces', status: 'ok', text: `${url} takes spans`, notes: [] });
    answers = 401;
    expect(await checkCollector(url)).toMatchObject({ status: 'ok', text: expect.stringContaining('asks for a key') });
    answers = 404;
    expect(await checkCollector(url)).toMatchObject({ status: 'warn', notes: [expect.stringContaining('404')] });
    await new Promise(resolve => {
      server.close(resolve);
      server.closeAllConnections();
    });
    expect(await checkCollector(url)).toMatchObject({ status: 'warn', text: `no service answers at ${url}` });
  });
});

describe('the check of the data directory', () => {
  test('checkDataDir accepts a missing directory that can be made, without making it', async () => {
    const finding = await checkDataDir(join(dir, 'a', 'b'));
    expect(finding).toMatchObject({ status: 'ok', text: expect.stringContaining('is made at the first start') });
    expect(readdirSync(dir)).toEqual([]);
  });

  test('checkDataDir accepts an existing directory and reports its free space', async () => {
    mkdirSync(join(dir, 'there'));
    expect((await checkDataDir(join(dir, 'there'))).text).toMatch(/there, \d+\.\d GiB free$/);
  });

  test('checkDataDir fails for a path that is a file or is below a file', async () => {
    writeFileSync(join(dir, 'file'), '');
    for (const path of [join(dir, 'file'), join(dir, 'file', 'below')]) {
      expect(await checkDataDir(path)).toMatchObject({
        status: 'fail',
        notes: [`${join(dir, 'file')} is not a directory.`],
      });
    }
  });
});

describe('the check of the database', () => {
  test('checkDatabase opens a temporary database and removes it afterwards', async () => {
    let opened = '';
    const finding = await checkDatabase(async file => {
      opened = file;
      writeFileSync(file, '');
      return { destroy: async () => {} };
    });
    expect(finding.status).toBe('ok');
    expect(() => readdirSync(join(opened, '..'))).toThrow('ENOENT');
  });

  test('checkDatabase reports the reason when the database does not open', async () => {
    const finding = await checkDatabase(async () => {
      throw new Error('no native module for this machine');
    });
    expect(finding).toMatchObject({ status: 'fail', notes: ['no native module for this machine'] });
  });
});

describe('the check of a port', () => {
  async function listening<S extends Server>(server: S, use: (port: number) => Promise<void>): Promise<void> {
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    try {
      await use((server.address() as AddressInfo).port);
    } finally {
      await new Promise(resolve => server.close(resolve));
    }
  }

  test('checkPort accepts a free port and port 0', async () => {
    let freePort = 0;
    await listening(createServer(), async port => {
      freePort = port;
    });
    expect((await checkPort('frontend', '127.0.0.1', freePort)).status).toBe('ok');
    expect((await checkPort('frontend', '127.0.0.1', 0)).text).toBe('any free port');
  });

  test('checkPort accepts a port on which a running service answers', async () => {
    const service = createHttpServer((_, response) => response.setHeader('x-trace-id', 't').end('{}'));
    await listening(service, async port => {
      const finding = await checkPort('frontend', '127.0.0.1', port);
      expect(finding).toMatchObject({ status: 'ok', text: `a service answers at 127.0.0.1:${port}` });
    });
  });

  test('checkPort fails when another program has the port', async () => {
    await listening(
      createServer(socket => socket.destroy()),
      async port => {
        expect(await checkPort('frontend', '127.0.0.1', port)).toMatchObject({
          status: 'fail',
          text: `127.0.0.1:${port} is taken`,
        });
      },
    );
  });

  test('checkPort fails for an address of another machine', async () => {
    const finding = await checkPort('frontend', '192.0.2.1', 8888);
    expect(finding).toMatchObject({ status: 'fail', text: '192.0.2.1:8888 cannot be bound' });
  });
});

describe('the finding for a driver', () => {
  const config = { defaultExecutor: 'process', requireIsolation: false } as const;
  const works = { available: true, capabilities: { isolation: ['mount', 'pid'] }, degraded: [] } as const;
  const isMissing = { available: false, reason: 'No docker daemon answers.' } as const;

  test('driverFinding lists the isolation layers of a working driver', () => {
    expect(driverFinding('process', works, config)).toMatchObject({
      status: 'ok',
      text: 'works; isolation: mount, pid',
    });
  });

  test('driverFinding fails for a missing driver only when the driver is the default', () => {
    expect(driverFinding('docker', isMissing, config)).toMatchObject({ status: 'warn', notes: [isMissing.reason] });
    expect(driverFinding('process', isMissing, config).status).toBe('fail');
  });

  test('driverFinding warns about a missing layer, and fails when isolation is required', () => {
    const degraded = { ...works, degraded: ['Namespaces are forbidden.'] };
    expect(driverFinding('process', degraded, config)).toMatchObject({
      status: 'warn',
      notes: expect.arrayContaining(degraded.degraded),
    });
    expect(driverFinding('process', degraded, { ...config, requireIsolation: true }).status).toBe('fail');
    expect(driverFinding('docker', degraded, { ...config, requireIsolation: true }).status).toBe('warn');
  });

  test.each([
    ['docker', ['pid', 'user'], true],
    ['process', ['mount', 'user'], true],
    ['supervisor', ['mount', 'user'], true],
    ['process', ['mount', 'user', 'user_limits'], false],
  ])('driverFinding notes shared kernel limits per user: %s with %j', (name, isolation, isShared) => {
    const probe = { ...works, capabilities: { ...works.capabilities, isolation } };
    const { status, notes } = driverFinding(name, probe, config);
    expect(status).toBe('ok');
    expect(notes.some(note => note.includes('inotify'))).toBe(isShared);
  });

  test.each([
    ['process', ['pid'], true],
    ['process', ['mount'], false],
    ['docker', [], false],
  ])('driverFinding notes that sandboxes see files of the service: %s with %j', (name, isolation, isVisible) => {
    const probe = { ...works, capabilities: { ...works.capabilities, isolation } };
    const { notes } = driverFinding(name, probe, config);
    expect(notes.some(note => note.includes('tokens, keys and records'))).toBe(isVisible);
  });

  test('driverFinding warns when the operator disables a layer, even when isolation is required', () => {
    const chosen = ['The network is shared.'];
    const finding = { status: 'warn', notes: expect.arrayContaining(chosen) };
    for (const requireIsolation of [false, true]) {
      expect(driverFinding('process', works, { ...config, requireIsolation }, chosen)).toMatchObject(finding);
    }
  });
});

describe('the finding for Python', () => {
  const config = {
    defaultExecutor: 'process',
    process: {
      spares: 4,
      warm: [],
      zygotePerTenant: false,
      pythons: {},
      network: 'shared',
      networkRange: '10.213.0.0/16',
      setForwarding: false,
      diskMb: 0,
    },
    jobs: { python: '' } as Config['jobs'],
  } as const;
  const only =
    (...versions: string[]) =>
    async (version: string) => {
      if (!versions.includes(version)) throw new Error(`runtime python${version} is not available`);
      return { version, path: `/usr/bin/python${version}` };
    };

  test('pythonFinding lists the installed Python versions', async () => {
    expect(await pythonFinding(only('3.11', '3.9'), config)).toMatchObject({
      status: 'ok',
      text: '3.9, 3.11',
      notes: [],
    });
  });

  test('pythonFinding fails without any Python when the default executor is process', async () => {
    expect((await pythonFinding(only(), config)).status).toBe('fail');
    expect((await pythonFinding(only(), { ...config, defaultExecutor: 'docker' })).status).toBe('warn');
  });

  test('pythonFinding warns when the Python version of jobs.python is not installed', async () => {
    const jobs = { ...config.jobs, python: '3.99' };
    expect(await pythonFinding(only('3.11'), { ...config, jobs })).toMatchObject({
      status: 'warn',
      text: '3.11',
      notes: ['jobs.python is 3.99: runtime python3.99 is not available; jobs have no python then.'],
    });
    expect(await pythonFinding(only('3.11'), { ...config, jobs: { ...jobs, python: '3.11' } })).toMatchObject({
      status: 'ok',
    });
  });

  test('pythonFinding warns about a configured Python that does not work', async () => {
    const process = { ...config.process, pythons: { '3.12': '/nowhere' } };
    const finding = await pythonFinding(only('3.11'), { ...config, process });
    expect(finding).toMatchObject({ status: 'warn', notes: ['runtime python3.12 is not available'] });
  });
});
