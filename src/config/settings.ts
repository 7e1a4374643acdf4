import { DRIVERS, INSTALLED_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import type { Setting } from '../core/setting.ts';
import { CODE_SETTINGS } from './code-settings.ts';
import { FUNCTION_SETTINGS } from './function-settings.ts';
import { JOB_SETTINGS } from './job-settings.ts';
import { LOG_SETTINGS } from './log-settings.ts';
import { SERVICE_SETTINGS } from './service-settings.ts';

type Drivers = typeof DRIVERS;
type DriverPath = { [D in keyof Drivers]: `${D}.${keyof Drivers[D]['settings'] & string}` }[keyof Drivers];
/** `docker.host` is the setting `host` of the driver `docker`. */
type DriverSettings = {
  readonly [P in DriverPath]: P extends `${infer D extends keyof Drivers}.${infer S}`
    ? S extends keyof Drivers[D]['settings']
      ? Drivers[D]['settings'][S]
      : never
    : never;
};

/**
 * Every setting of the service, once. The type `Config`, the flags and `--help` of `serve`, the names of the environment
 * variables, the reader of the YAML file, `docs/configuration.md` and `rookery.sample.yaml` all come from this table.
 * To add a setting, add a row to the `*-settings.ts` of its kind and run `npm run generate`; those of a driver are in the driver's folder.
 */
export const SETTINGS = {
  ...SERVICE_SETTINGS,
  ...driverSettings(),
  ...FUNCTION_SETTINGS,
  ...JOB_SETTINGS,
  ...CODE_SETTINGS,
  ...LOG_SETTINGS,
} as const satisfies Readonly<Record<string, Setting<unknown>>>;

function driverSettings(): DriverSettings {
  const entries = INSTALLED_SANDBOX_TYPES.flatMap(type =>
    Object.entries(DRIVERS[type].settings).map(([name, setting]) => [`${type}.${name}`, setting]),
  );
  return Object.fromEntries(entries) as DriverSettings;
}

export type SettingPath = keyof typeof SETTINGS;

/** Environment variables that are not settings of the service: they belong to the command line client. */
export const CLIENT_VARIABLES = {
  ROOKERY_CONFIG: 'The configuration file of `serve` and `doctor`, when `--config` is not given.',
  ROOKERY_ADDRESS: 'Where the command line finds the frontend.',
  ROOKERY_META_ADDRESS: 'Where the command line finds the meta_service.',
  ROOKERY_TOKEN: 'The token that the command line sends.',
  ROOKERY_TOKEN_FILE: 'A file with the token that the command line sends.',
  ROOKERY_TENANT: 'The tenant that the command line names, when authentication is off.',
} as const;

/** `jwt.secretFile` → `ROOKERY_JWT_SECRET_FILE`. */
export function variableOf(settingPath: string): string {
  const words = settingPath.replaceAll('.', '_').replace(/([a-z0-9])([A-Z])/g, '$1_$2');
  return `ROOKERY_${words.toUpperCase()}`;
}
