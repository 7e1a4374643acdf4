import { fileURLToPath } from 'node:url';
import { DockerDaemon, whyNoDocker } from '../../test/parts/docker.ts';
import { type Bed, type BenchRow, NotHere } from '../bed.ts';
import { atMost, type Measurement, percentile } from '../measure.ts';

const EVENT = { name: 'Ada' };
const AGENT_CODE = fileURLToPath(new URL('../agent', import.meta.url));
const PYTHON = 'python3.11';
const PROGRAM =
  "import sys, json; sys.path.insert(0, '/code'); import handler; print(json.dumps(handler.handle({'name': 'Ada'}, None)))";

/**
 * Measures the time from a create to the first result of new code in a container.
 * It alternates with `docker run` of the same handler. Both use a Docker daemon that the bench starts.
 */
export const docker: BenchRow = {
  name: 'docker',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const missing = whyNoDocker();
    if (missing !== null) throw new NotHere(missing);
    await using daemon = await DockerDaemon.start();
    const image = await daemon.import('python');
    const rookery = await bed.rookery({ settings: [`docker.host=${daemon.host}`] });
    const spec = { sandbox_type: 'docker', runtime: PYTHON, rootfs: { imageurl: image } };
    const ours: number[] = [];
    const byHand: number[] = [];
    for (let done = -2; done < (bed.isQuick ? 5 : 30); done += 1) {
      const startedAt = performance.now();
      const id = await rookery.create(AGENT_CODE, spec);
      await rookery.invoke(id, EVENT);
      const answeredAt = performance.now();
      await rookery.deleteAll([id]);
      const ranAt = performance.now();
      await daemon.docker('run', '--rm', '--volume', `${AGENT_CODE}:/code:ro`, image, PYTHON, '-c', PROGRAM);
      const endedAt = performance.now();
      // The first two turns only warm up.
      if (done < 0) continue;
      ours.push(answeredAt - startedAt);
      byHand.push(endedAt - ranAt);
    }
    bed.raw.docker = { ours, byHand };
    return [
      {
        what: 'create → first result, docker, p50, against `docker run`',
        value: percentile(ours, 0.5),
        unit: 'ms',
        against: { what: '`docker run` of the same handler, in turns', value: percentile(byHand, 0.5) },
        target: atMost('ratio', 1.15),
      },
      { what: 'create → first result, docker, p99', value: percentile(ours, 0.99), unit: 'ms' },
    ];
  },
};
