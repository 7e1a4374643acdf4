import type { DriverName } from '../core/sandbox-types.ts';
import { DOCKER } from './docker/definition.ts';
import type { DriverDefinition } from './driver-definition.ts';
import { KUBERNETES } from './kubernetes/definition.ts';
import { PROCESS } from './process/definition.ts';
import { SUPERVISOR } from './supervisor/definition.ts';

/**
 * The definition of each driver in `core/sandbox-types.ts`. Settings, `doctor` and the documents read it.
 * A `definition.ts` holds texts and settings only, and loads its driver on first use.
 */
export const DRIVERS = {
  process: PROCESS,
  docker: DOCKER,
  supervisor: SUPERVISOR,
  kubernetes: KUBERNETES,
} as const satisfies Readonly<Record<DriverName, DriverDefinition>>;
