import { afterAll, beforeAll, expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import { describeWith } from '../probe.ts';
import { Laptop } from '../walk/laptop.ts';
import { PLAIN } from '../walk/programs.ts';
import { login, serveFor, walk } from '../walk/steps.ts';

describeWith(['root', 'namespaces', 'networks'], 'a user on another machine', () => {
  let laptop: Laptop;
  let served: Awaited<ReturnType<typeof serveFor>>;

  beforeAll(async () => {
    laptop = Laptop.make();
    served = await serveFor(laptop);
  }, 120_000);
  afterAll(async () => {
    await served?.remove();
    laptop?.remove();
  }, 120_000);

  test('a program is created, deployed, called, changed, redeployed, inspected and deleted', async () => {
    // The user cannot see the data directory of the service.
    expect((await laptop.run(`ls ${served.server.dataDir}`)).code).not.toBe(0);
    await login(laptop, served);
    const runtime = `python${(await findInterpreters()).at(-1)?.version}`;
    const commands: string[] = [];
    for await (const { command } of walk(laptop, served.server, PLAIN, runtime)) commands.push(command);
    expect(commands).toHaveLength(9);
    // A user without a token is rejected.
    const without = await laptop.run(`rookery logout && rookery agent list`);
    expect(without).toMatchObject({ code: 77 });
  }, 300_000);
});
