import { afterEach, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import { DockerDaemon } from '../parts/docker.ts';
import { IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { call, initOf, isError } from '../suites/sandbox-driver.ts';
import { DockerFixture } from './docker-fixture.ts';

const WAIT_MS = 30_000;

describeWith(['docker'], 'a restart of the docker daemon', () => {
  const daemons: DockerDaemon[] = [];

  afterEach(async () => {
    for (const daemon of daemons.splice(0)) await daemon.stop();
  }, DOCKER_START_MS);

  const signal = () => AbortSignal.timeout(WAIT_MS);

  const begin = async (liveRestore: boolean) => {
    const daemon = await DockerDaemon.start({ liveRestore, images: ['python'] });
    daemons.push(daemon);
    const fixture = new DockerFixture(daemon.host, IMAGES.python);
    const driver = fixture.driver();
    const spec = fixture.spec();
    const started = await driver.start(spec, signal());
    return { daemon, fixture, driver, spec, ...started, waiting: driver.wait(started.handle) };
  };

  test('a container that outlives the daemon keeps running, and the driver notices its later end', {
    timeout: DOCKER_START_MS,
  }, async () => {
    const { daemon, fixture, driver, spec, handle, waiting } = await begin(true);
    await daemon.halt('SIGTERM');
    // A call needs no daemon.
    const channel = await Channel.open(handle.endpoint, spec.secret, signal());
    await channel.initialize(initOf(spec, '/code', 'behaviours.exit'), signal());
    await expect(driver.inspect(handle)).rejects.toSatisfy(isError('unavailable'));
    await daemon.resume();
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    await expect(call(channel, { code: 5 })).rejects.toThrow();
    expect(await waiting).toMatchObject({ code: 5 });
    await fixture.dispose();
  });

  test("the driver notices after the daemon's return that a container ended in the meantime", {
    timeout: DOCKER_START_MS,
  }, async () => {
    const { daemon, fixture, driver, spec, handle, waiting } = await begin(true);
    await daemon.halt('SIGKILL');
    const channel = await Channel.open(handle.endpoint, spec.secret, signal());
    await channel.initialize(initOf(spec, '/code', 'behaviours.exit'), signal());
    await expect(call(channel, { code: 5 })).rejects.toThrow();
    await daemon.resume();
    expect(await waiting).toMatchObject({ signal: null, oomKilled: false });
    expect(await driver.inspect(handle)).toMatchObject({ state: 'exited' });
    await fixture.dispose();
  });

  test('the driver reports a container as exited when it ends with the daemon', {
    timeout: DOCKER_START_MS,
  }, async () => {
    const { daemon, fixture, driver, handle, waiting } = await begin(false);
    await daemon.halt('SIGTERM');
    await daemon.resume();
    const exit = await waiting;
    expect(exit).toMatchObject({ oomKilled: false, cause: 'stopped through docker' });
    const { cause: _cause, ...known } = exit;
    expect(await driver.inspect(handle)).toEqual({ state: 'exited', exit: known });
    await driver.remove(handle);
    const again = await driver.start(fixture.spec(), signal());
    expect(await driver.inspect(again.handle)).toEqual({ state: 'running' });
    await fixture.dispose();
  });
});
