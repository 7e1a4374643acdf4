import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Served } from '../../scripts/served.ts';
import { readRegister } from '../../src/core/function.ts';
import { formatUrn, LATEST } from '../../src/core/urn.ts';
import { toStored } from '../../src/registry/function-record.ts';
import { openDatabase } from '../../src/storage/database.ts';
import { insertVersion } from '../../src/storage/queries/functions.ts';
import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { type LoadResult, load } from '../load.ts';
import { atLeast, type Measurement, median, type Target } from '../measure.ts';

const FLOOR = fileURLToPath(new URL('../floor/same-bytes.ts', import.meta.url));
const DURABLE_FLOOR = fileURLToPath(new URL('../floor/durable-insert.ts', import.meta.url));
const FUNCTIONS = '/serverless/v1/functions';
const FEW = 100;
const MANY = 100_000;
const SEED_GROUP = 1000;
const READERS = 16;
const WRITERS = 8;
/** Number of versions that are read in turn. */
const READ = 50;

const spec = (name: string) => ({
  name,
  runtime: 'python3.11',
  kind: 'faas',
  cpu: 600,
  memory: 512,
  timeout: 60,
  handler: 'handler.handle',
  storageType: 'local',
  codePath: '/usr',
  environment: { STAGE: 'bench', REGION: 'here' },
  description: 'a function of the bench',
});
const nameOf = (index: number) => `0@bench@function-${index}`;

/**
 * Measures read, list and register in the registry, each against a bare server that answers the same bytes.
 * It also measures how the times grow with the number of functions.
 */
export const registry: BenchRow = {
  name: 'registry',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const scratch = mkdtempSync(join(tmpdir(), 'rookery-bench-'));
    const servers: Served[] = [];
    const floors: BareServer[] = [];
    try {
      for (const count of [FEW, MANY]) {
        const dataDir = join(scratch, String(count));
        const first = await Served.start({ dataDir, nodeArgs: [] });
        await first.end();
        await seed(join(dataDir, 'rookery.db'), count);
        servers.push(await Served.start({ dataDir, nodeArgs: bed.nodeArgs }));
      }
      const [few, many] = servers.map(server => server.metaUrl);
      if (few === undefined || many === undefined) throw new Error('no server');
      const versions = Array.from({ length: READ }, (_, index) => versionPath(nameOf(index)));
      const list = `${FUNCTIONS}?pageSize=200`;
      const shortList = `${FUNCTIONS}?pageSize=${FEW}`;
      const answers = await answersOf(many, [...versions, list, shortList]);
      const file = join(scratch, 'answers.json');
      writeFileSync(file, JSON.stringify(answers));
      const floor = await BareServer.start(FLOOR, file);
      floors.push(floor);
      const answerFile = join(scratch, 'answer.json');
      writeFileSync(answerFile, answers[FUNCTIONS] ?? '');
      const durableFloor = await BareServer.start(DURABLE_FLOOR, scratch, answerFile);
      floors.push(durableFloor);

      type Request = Omit<Parameters<typeof load>[0], 'url' | 'durationMs'>;
      const side = (request: Request, url: string, name: string) => () =>
        load({ ...request, body: request.body.replace('%SIDE%', `${name}-${runs++}`), durationMs: bed.turnMs, url });
      const sidesOf = (request: Request) => ({
        floor: side(request, floor.url, 'f'),
        few: side(request, few, 's'),
        many: side(request, many, 'l'),
      });
      const measure = (request: Request) => interleave(bed, sidesOf(request));
      const get = await measure({ paths: versions, method: 'GET', body: '', connections: READERS });
      const lists = await measure({ paths: [list], method: 'GET', body: '', connections: READERS });
      const shortLists = await measure({ paths: [shortList], method: 'GET', body: '', connections: READERS });
      const body = JSON.stringify(spec('0@bench@%SIDE%-%UNIQUE%'));
      const request: Request = { paths: [FUNCTIONS], method: 'POST', body, connections: WRITERS };
      const register = await interleave(bed, { ...sidesOf(request), durable: side(request, durableFloor.url, 'd') });
      bed.raw.registry = { get, lists, shortLists, register };
      return [
        ...rows(`GET of one version, ${READERS} callers`, get, atLeast('ratio', 0.5)),
        ...rows(`list of 200 functions, ${READERS} callers`, { ...lists, few: shortLists.few }, atLeast('ratio', 0.5), {
          many: shortLists.many,
          what: `list of ${FEW} functions, ${READERS} callers`,
        }),
        ...rows(`register, ${WRITERS} callers, durable`, register, atLeast('ratio', 0.4)),
        {
          what: `the same, beside the least that SQLite allows`,
          value: perSecond(register.many),
          unit: '/s',
          against: { what: 'bare node:http, one insert, one flush', value: perSecond(register.durable) },
        },
      ];
    } finally {
      for (const floor of floors) await floor.stop();
      for (const server of servers) await server.end();
      rmSync(scratch, { recursive: true, force: true });
    }
  },
};

let runs = 0;

type Sides = Readonly<Record<'floor' | 'few' | 'many', readonly LoadResult[]>>;

const perSecond = (results: readonly LoadResult[]) =>
  median(results.map(({ requests, seconds }) => requests / seconds));

/** Returns the comparison to the floor, and the growth from few to many functions. */
function rows(
  what: string,
  sides: Sides,
  target: Target,
  growth: { many: readonly LoadResult[]; what: string } = { many: sides.many, what },
): Measurement[] {
  const p50 = (results: readonly LoadResult[]) => median(results.map(result => result.p50Micros)) / 1000;
  return [
    {
      what: `${what}, with ${MANY} functions`,
      value: perSecond(sides.many),
      unit: '/s',
      against: { what: 'bare node:http', value: perSecond(sides.floor) },
      target,
    },
    {
      what: `${growth.what}, ${MANY} functions, p50`,
      value: p50(growth.many),
      unit: 'ms',
      against: { what: `with ${FEW}`, value: p50(sides.few) },
      target: { of: 'ratio', is: 'at most', bound: 1.25 },
    },
  ];
}

function versionPath(name: string): string {
  return `${FUNCTIONS}/${encodeURIComponent(name)}?versionNumber=latest`;
}

/**
 * Inserts functions through the storage layer. 100 000 registers over HTTP would take most of the bench's
 * time.
 */
async function seed(file: string, count: number): Promise<void> {
  const database = await openDatabase(file);
  try {
    for (let start = 0; start < count; start += SEED_GROUP) {
      await database.transaction().execute(async transaction => {
        for (let index = start; index < Math.min(count, start + SEED_GROUP); index += 1) {
          await insertVersion(transaction, rowOf(nameOf(index)));
        }
      });
    }
  } finally {
    await database.destroy();
  }
}

function rowOf(name: string) {
  const read = readRegister(spec(name));
  if (!read.ok) throw new Error(read.problems.join('; '));
  const [business, tenant] = ['yrk', 'default'];
  const fn = {
    ...{ tenant, business, version: LATEST, revisionId: '20260101000000000', versionDesc: '', updateTime: '' },
    urn: formatUrn({ business, tenant, name, version: LATEST }),
    createTime: '2026-01-01 00:00:00.000 UTC',
    publishTime: '',
    spec: read.value,
  };
  return { ...toStored(fn), default_published_at_ms: 0 };
}

/** Returns the answers of Rookery to these paths and to a register. */
async function answersOf(source: string, paths: readonly string[]): Promise<Record<string, string>> {
  const texts: Record<string, string> = {};
  for (const path of paths) texts[path] = await textOf(await fetch(`${source}${path}`));
  const body = JSON.stringify(spec('0@bench@first'));
  texts[FUNCTIONS] = await textOf(await fetch(`${source}${FUNCTIONS}`, { method: 'POST', body }));
  return texts;
}

/** A running bare server of `floor/`. */
class BareServer {
  readonly url: string;
  readonly #process: ReturnType<typeof spawn>;

  private constructor(process: ReturnType<typeof spawn>, url: string) {
    this.#process = process;
    this.url = url;
  }

  static async start(program: string, ...args: readonly string[]): Promise<BareServer> {
    const child = spawn(process.execPath, ['--import', 'tsx', program, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const line = await new Promise<string>((resolve, reject) => {
      child.stdout.once('data', data => resolve(String(data)));
      child.once('error', reject);
      child.once('exit', code => reject(new Error(`the bare server ended with ${code}`)));
    });
    return new BareServer(child, line.trim().split(' ')[1] ?? '');
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode !== null) return;
    const ended = new Promise(resolve => this.#process.once('exit', resolve));
    this.#process.kill('SIGTERM');
    await ended;
  }
}

async function textOf(answer: Response): Promise<string> {
  const text = await answer.text();
  if (!text.startsWith('{"code":0,')) throw new Error(`${answer.url} answered ${answer.status}: ${text.slice(0, 300)}`);
  return text;
}
