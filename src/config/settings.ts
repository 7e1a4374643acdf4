import { DRIVER_NAMES } from '../core/sandbox-types.ts';
import type { Setting, SettingValues } from '../core/setting.ts';
import { DRIVERS } from '../sandbox/definitions.ts';
import { HISTORY_SETTINGS, LOG_SETTINGS, SERVICE_SETTINGS } from './service-settings.ts';
import { CLUSTER_SETTINGS, SECRET_SETTINGS, STORAGE_SETTINGS } from './storage-settings.ts';
import {
  CODE_SETTINGS,
  DEPENDENCY_SETTINGS,
  FUNCTION_SETTINGS,
  JOB_SETTINGS,
  POOL_SETTINGS,
} from './workload-settings.ts';

type DriverDefinitions = typeof DRIVERS;
type DriverPath = {
  [D in keyof DriverDefinitions]: `${D}.${keyof DriverDefinitions[D]['settings'] & string}`;
}[keyof DriverDefinitions];
/** Settings of drivers by path: `docker.host` is the setting `host` of the driver `docker`. */
type DriverSettings = {
  readonly [P in DriverPath]: P extends `${infer D extends keyof DriverDefinitions}.${infer S}`
    ? S extends keyof DriverDefinitions[D]['settings']
      ? DriverDefinitions[D]['settings'][S]
      : never
    : never;
};

/**
 * Every setting of the service, once.
 *
 * - The type `Config`, the flags and `--help` of `serve`, and the names of environment variables come from
 *   this table.
 * - The reader of the YAML file, `docs/reference/configuration.md` and `rookery.sample.yaml` come from it
 *   too.
 *
 * To add a setting, add an entry to the `*-settings.ts` of its kind and run `npm run generate`. Settings of a
 * driver are in the driver's folder.
 */
export const SETTINGS = {
  ...SERVICE_SETTINGS,
  ...STORAGE_SETTINGS,
  ...driverSettings(),
  ...POOL_SETTINGS,
  ...FUNCTION_SETTINGS,
  ...JOB_SETTINGS,
  ...CODE_SETTINGS,
  ...DEPENDENCY_SETTINGS,
  ...SECRET_SETTINGS,
  ...LOG_SETTINGS,
  ...HISTORY_SETTINGS,
  ...CLUSTER_SETTINGS,
} as const satisfies Readonly<Record<string, Setting<unknown>>>;

function driverSettings(): DriverSettings {
  const entries = DRIVER_NAMES.flatMap(type =>
    Object.entries(DRIVERS[type].settings).map(([name, setting]) => [`${type}.${name}`, setting]),
  );
  return Object.fromEntries(entries) as DriverSettings;
}

export type SettingPath = keyof typeof SETTINGS;

/**
 * Removed settings and their replacements. They have no effect and are accepted with a warning for one
 * version.
 */
export const REMOVED_SETTINGS: Readonly<Record<string, string>> = {
  lowCpuLatency: 'Use `tuned-adm profile latency-performance` to keep processors awake.',
};

/** Values of all settings by whole path: `values['jwt.secretFile']`. */
export type Values = SettingValues<typeof SETTINGS>;

/** Environment variables of the command line client, which are not settings of the service. */
export const CLIENT_VARIABLES = {
  ROOKERY_CONFIG: 'The configuration file of `serve` and `doctor`, when `--config` is not given.',
  ROOKERY_CONTEXT: 'The context of the command line, when `--context` is not given.',
  ROOKERY_ADDRESS: 'Where the command line finds the frontend.',
  ROOKERY_META_ADDRESS: 'Where the command line finds the meta_service.',
  ROOKERY_TOKEN: 'The token that the command line sends.',
  ROOKERY_TOKEN_FILE: 'A file with the token that the command line sends.',
  ROOKERY_CA_FILE: 'The PEM file of the authority that signed the certificate of the service, for the command line.',
  ROOKERY_TENANT: 'The tenant that the command line names, when authentication is off.',
} as const;

/**
 * Variables of a standard, each with the setting that it sets and a conversion. The first variable that is
 * present wins; a `ROOKERY_` variable wins over all of them.
 */
export const STANDARD_VARIABLES: readonly (readonly [string, SettingPath, (value: string) => string])[] = [
  ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'tracing.endpoint', value => value],
  // The base of all signals: each signal is sent below it.
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'tracing.endpoint', value => `${value.replace(/\/$/, '')}/v1/traces`],
];

/** Returns the environment variable of a setting: `jwt.secretFile` → `ROOKERY_JWT_SECRET_FILE`. */
export function variableOf(settingPath: string): string {
  const words = settingPath.replaceAll('.', '_').replace(/([a-z0-9])([A-Z])/g, '$1_$2');
  return `ROOKERY_${words.toUpperCase()}`;
}
