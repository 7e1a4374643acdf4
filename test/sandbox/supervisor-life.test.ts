import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { ServiceError } from '../../src/core/error.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxSpec, StartedSandbox } from '../../src/sandbox/driver.ts';
import { describeExit } from '../../src/sandbox/driver.ts';
import type { SupervisorDriver } from '../../src/sandbox/supervisor/driver.ts';
import { available } from '../parts/available.ts';
import { type SupervisordOptions, TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

const WAIT_MS = 20_000;
const waitFor = <T>(look: () => T | Promise<T>) => vi.waitFor(look, { timeout: WAIT_MS, interval: 20 });

describeWith(['supervisor'], 'programs of supervisord', () => {
  const ends: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  const supervisord = async (options: SupervisordOptions = {}) => {
    const started = await TestSupervisord.start(options);
    ends.push(() => started.dispose());
    return started;
  };
  const fixture = (on: TestSupervisord) => {
    const made = new SupervisorFixture(on);
    ends.push(() => made.dispose());
    return made;
  };
  const start = (driver: SupervisorDriver, spec: SandboxSpec) => driver.start(spec, AbortSignal.timeout(WAIT_MS));
  /** Starts a sandbox and waits until its runtime serves. An earlier SIGTERM would just end the process. */
  const startServing = async (driver: SupervisorDriver, spec: SandboxSpec) => {
    const started = await start(driver, spec);
    (await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS))).close();
    return started;
  };
  const programOf = (started: StartedSandbox) => started.facts.sandboxId;
  const pidOf = (on: TestSupervisord, program: string) =>
    Number(/pid (\d+)/.exec(on.control('status', program).stdout)?.[1]);
  const shimOf = (on: TestSupervisord, started: StartedSandbox) => pidOf(on, programOf(started));

  test('an instance is a program of supervisord whose section names the instance', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const spec = under.spec({ command: { kind: 'exec', argv: ['/bin/sh', '-c', 'echo printed; exec sleep 600'] } });
    const started = await start(driver, spec);
    expect(on.programs()).toContain(programOf(started));
    const section = join(on.includeDir, `${programOf(started)}.conf`);
    expect(readFileSync(section, 'utf8')).toContain(`Instance: ${spec.instanceId}`);
    await waitFor(() => expect(on.control('tail', programOf(started)).stdout).toContain('printed'));
    await driver.remove(started.handle);
    expect(on.programs()).not.toContain(programOf(started));
    expect(on.included().filter(name => name.includes(programOf(started)))).toEqual([]);
  });

  test('closing the driver keeps instances and ends waiting programs', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const started = await start(driver, under.spec());
    await driver.close();
    expect(on.programs()).toEqual([programOf(started)]);
    expect(readdirSync(join(under.dataDir, 'run/supervisor')).filter(name => name.endsWith('.sock'))).toEqual([]);
    const next = under.driver();
    expect(await next.inspect(started.handle)).toEqual({ state: 'running' });
    await next.remove(started.handle);
    await next.close();
    expect(on.programs()).toEqual([]);
    expect(on.included()).toEqual([]);
  });

  test('a driver that closes waits for all its starts, and none begins afterwards', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver({ spares: 1 });
    // The first start uses a waiting program and is in progress. The others wait for a program.
    await available(driver);
    const starts = Array.from({ length: 3 }, () => start(driver, under.spec()));
    let over = 0;
    for (const one of starts) void one.catch(() => undefined).finally(() => (over += 1));
    await driver.close();
    expect(over).toBe(starts.length);
    await expect(start(driver, under.spec())).rejects.toSatisfy(
      error => error instanceof ServiceError && error.message === 'the supervisor driver is closed',
    );
    const begun = (await Promise.allSettled(starts)).flatMap(one => (one.status === 'fulfilled' ? [one.value] : []));
    expect(on.programs()).toEqual(begun.map(programOf));
    expect(readdirSync(join(under.dataDir, 'run/supervisor')).filter(name => name.endsWith('.sock'))).toEqual([]);
    const next = under.driver();
    for (const { handle } of begun) await next.remove(handle);
    expect(await next.list()).toEqual([]);
    await next.close();
    expect(on.included()).toEqual([]);
  });

  test('a failed start leaves no program, section, log or directory', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver({ spares: 0 });
    const missing = { source: '/nowhere/at/all', target: '/m', readonly: true };
    await expect(start(driver, under.spec({ mounts: [missing] }))).rejects.toThrow('/nowhere/at/all');
    expect(on.programs()).toEqual([]);
    expect(on.included()).toEqual([]);
    expect(readdirSync(join(under.dataDir, 'run/supervisor/instances'))).toEqual([]);
    expect(readdirSync(join(under.dataDir, 'run/supervisor/spares'))).toEqual([]);
  });

  test('a stop of the program by an operator ends the instance within its grace, and the reason names the operator', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const started = await startServing(driver, under.spec());
    const waiting = driver.wait(started.handle);
    on.control('stop', programOf(started));
    const exit = await waiting;
    expect(describeExit(exit)).toBe('supervisord stopped it (exit code 0)');
    expect(await driver.inspect(started.handle)).toEqual({ state: 'exited', exit });
  });

  test('a program that an operator starts again runs no code', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const started = await startServing(driver, under.spec());
    await driver.stop(started.handle, 10_000);
    await waitFor(() => expect(on.control('status', programOf(started)).stdout).toMatch('EXITED'));
    on.control('start', programOf(started));
    await waitFor(() => expect(on.control('status', programOf(started)).stdout).toMatch('EXITED'));
    expect(await driver.inspect(started.handle)).toMatchObject({ state: 'exited', exit: { code: 0 } });
  });

  test('`supervisorctl update` does not affect instances', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const started = await start(driver, under.spec());
    const shim = shimOf(on, started);
    on.control('update');
    expect(shimOf(on, started)).toBe(shim);
    expect(await driver.inspect(started.handle)).toEqual({ state: 'running' });
  });

  for (const [signal, cause] of [
    ['SIGTERM', 'supervisord stopped it'],
    ['SIGKILL', 'supervisord has ended'],
  ] as const) {
    test(`a supervisord that ends by ${signal} takes its instances along; the next one starts new ones and none of the old`, async () => {
      const on = await supervisord();
      const under = fixture(on);
      const driver = under.driver();
      const started = await startServing(driver, under.spec());
      const waiting = driver.wait(started.handle);
      await on.stop(signal);
      expect(describeExit(await waiting)).toBe(`${cause} (exit code 0)`);
      expect(await driver.probe()).toMatchObject({ available: false });
      await on.start();
      expect(on.control('status', programOf(started)).stdout).toMatch('STOPPED');
      const again = await start(driver, under.spec());
      expect(await driver.inspect(again.handle)).toEqual({ state: 'running' });
      await driver.remove(started.handle);
      await driver.remove(again.handle);
      await driver.close();
      expect(on.programs()).toEqual([]);
      expect(on.included()).toEqual([]);
    });
  }

  test('an instance that is removed while supervisord is down stays removed when supervisord is back', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const started = await start(driver, under.spec());
    await on.stop();
    await driver.remove(started.handle);
    expect(await driver.inspect(started.handle)).toEqual({ state: 'gone' });
    await on.start();
    expect(on.programs()).not.toContain(programOf(started));
  });

  test('the shim and its sandbox end together, whichever is killed', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver();
    const [first, second] = [await start(driver, under.spec()), await start(driver, under.spec())];
    process.kill(shimOf(on, first), 'SIGKILL');
    expect(await driver.wait(first.handle)).toMatchObject({ code: null, signal: 'SIGKILL' });
    process.kill(Number(second.handle.data.pid), 'SIGKILL');
    expect(await driver.wait(second.handle)).toMatchObject({ code: null, signal: 'SIGKILL' });
    await waitFor(() => expect(on.control('status', programOf(second)).stdout).toMatch('EXITED'));
  });

  test('a waiting program that is killed is replaced and leaves nothing', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver({ spares: 1 });
    await driver.probe();
    const [waiting] = on.programs();
    on.control('signal', 'KILL', String(waiting));
    await waitFor(() => expect(on.programs()).not.toContain(waiting));
    const started = await start(driver, under.spec());
    expect(await driver.inspect(started.handle)).toEqual({ state: 'running' });
    expect(readdirSync(join(under.dataDir, 'run/supervisor/spares'))).not.toContain(waiting);
  });

  test('two services on one supervisord do not touch each other’s programs', async () => {
    const on = await supervisord();
    const [one, other] = [fixture(on), fixture(on)];
    const started = await start(one.driver(), one.spec());
    const second = other.driver();
    const theirs = await start(second, other.spec());
    expect((await second.list()).map(({ instanceId }) => instanceId)).toEqual([theirs.handle.instanceId]);
    await second.remove(theirs.handle);
    await second.close();
    expect(await one.driver().inspect(started.handle)).toEqual({ state: 'running' });
    expect(on.programs()).toContain(programOf(started));
  });

  test('the next server removes programs without an instance, and their files, of a dead server', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const before = under.driver();
    const started = await start(before, under.spec());
    const ownPrefix = programOf(started).split('-').slice(0, 2).join('-');
    const left = `${ownPrefix}-0badcafe-1`;
    const foreign = 'rookery-ffffffff-0badcafe-1';
    for (const name of [left, foreign]) {
      writeFileSync(
        join(on.includeDir, `${name}.conf`),
        `[program:${name}]\ncommand = /bin/sleep 600\nautostart = false\nstartsecs = 0\n`,
      );
    }
    on.control('update');
    on.control('start', left, foreign);
    const next = under.driver();
    await next.list();
    await waitFor(() => expect(on.programs()).not.toContain(left));
    expect(existsSync(join(on.includeDir, `${left}.conf`))).toBe(false);
    expect(on.programs()).toEqual(expect.arrayContaining([foreign, programOf(started)]));
    expect(await next.inspect(started.handle)).toEqual({ state: 'running' });
  });

  test('each instance has a separate network when requested and possible, which its end removes from the host', async context => {
    const on = await supervisord();
    const under = fixture(on);
    const range = '10.215.0.0/16';
    const driver = under.driver({ network: { use: 'own', range, setForwarding: true } });
    const probe = await driver.probe();
    const missing = probe.available ? probe.degraded.find(text => text.includes('network of their own')) : probe.reason;
    if (missing !== undefined) return context.skip(missing);
    const [one, other] = [await start(driver, under.spec()), await start(driver, under.spec())];
    expect(one.facts).toMatchObject({ sandboxIp: expect.stringMatching(/^10\.215\./), warnings: [] });
    expect(one.facts.isolation).toContain('net');
    expect(other.facts.sandboxIp).not.toBe(one.facts.sandboxIp);
    await driver.remove(one.handle);
    await driver.remove(other.handle);
    await driver.close();
    expect(readdirSync('/sys/class/net').filter(name => name.startsWith('rk0ad7'))).toEqual([]);
    expect(existsSync(`/run/rookery/rookery_${range.replace(/[./]/g, '_')}`)).toBe(false);
  });

  const reasonOf = async (driver: SupervisorDriver) => {
    const probe = await driver.probe();
    return probe.available ? '' : probe.reason;
  };

  test('a missing supervisord is reported with the searched addresses', async () => {
    const on = await supervisord();
    const under = fixture(on);
    const driver = under.driver({ url: `unix://${on.directory}/none.sock` });
    expect(await reasonOf(driver)).toContain(`supervisord does not answer at unix://${on.directory}/none.sock`);
    await expect(start(driver, under.spec())).rejects.toSatisfy(
      error => error instanceof ServiceError && error.code === 'unavailable',
    );
    expect(await driver.list()).toEqual([]);
  });

  test('credentials are read from the file or the URL, and wrong or missing ones are reported without their values', async () => {
    const on = await supervisord({ tcp: true, credentials: { user: 'me', password: 'p:w%d' } });
    const under = fixture(on);
    const file = join(on.directory, 'credentials');
    writeFileSync(file, 'me:p:w%d\n');
    chmodSync(file, 0o600);
    expect(await reasonOf(under.driver({ credentialsFile: file }))).toBe('');
    expect(await reasonOf(under.driver({ url: `http://me:p%3Aw%25d@${on.address}` }))).toBe('');
    const wrong = await reasonOf(under.driver({ url: `http://me:secret-word@${on.address}` }));
    expect(wrong).toContain(`supervisord at http://${on.address} refuses the credentials`);
    expect(wrong).not.toContain('secret-word');
    expect(await reasonOf(under.driver())).toContain('asks for credentials');
  });

  test('an include directory that is missing or not read by supervisord is reported with the missing line', async () => {
    const on = await supervisord({ include: null });
    const under = fixture(on);
    const driver = under.driver();
    expect(await reasonOf(driver)).toContain(`put \`files = ${on.includeDir}/*.conf\` into the section [include]`);
    expect(on.included()).toEqual([]);
    expect(await reasonOf(under.driver({ includeDir: join(on.directory, 'none') }))).toContain('is not a directory');
    // supervisord reads its configuration again with each program, so no restart is needed.
    on.configure({});
    expect(await reasonOf(driver)).toBe('');
  });

  test('a foreign configuration that supervisord cannot read is reported, and no section of Rookery remains in it', async () => {
    const on = await supervisord();
    writeFileSync(join(on.includeDir, 'theirs.conf'), '[program:theirs]\n');
    const under = fixture(on);
    expect(await reasonOf(under.driver())).toContain('supervisord cannot read its configuration');
    expect(on.included()).toEqual(['theirs.conf']);
  });
});
