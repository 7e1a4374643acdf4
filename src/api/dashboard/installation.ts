import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { permissionDenied } from '../../core/error.ts';
import { errorDocs } from '../../http/docs.ts';

/** A setting with its current value. */
export interface SettingInForce {
  readonly name: string;
  /** The value as JSON. Secrets are masked. */
  readonly value: unknown;
  readonly is_default: boolean;
  readonly source: string;
  readonly doc: string;
}

/** A finding about this machine, as `rookery doctor` reports it. */
export interface Finding {
  readonly name: string;
  readonly status: 'ok' | 'warn' | 'fail';
  readonly text: string;
  readonly notes: readonly string[];
}

export interface InstallationRoutesOptions {
  readonly settings: () => readonly SettingInForce[];
  readonly findings: () => Promise<readonly Finding[]>;
  /** Tenants whose tokens see the installation. null: every token does. */
  readonly visibleTo: readonly string[] | null;
}

const Settings = Type.Object({
  settings: Type.Array(
    Type.Object(
      {
        name: Type.String(),
        value: Type.Unknown(),
        is_default: Type.Boolean(),
        source: Type.String({
          description:
            '`default`, or where it was given: `--port`, `environment variable ROOKERY_PORT`, `rookery.yaml:3`.',
        }),
        doc: Type.String(),
      },
      { title: 'Setting' },
    ),
  ),
});
const Findings = Type.Object({
  findings: Type.Array(
    Type.Object(
      {
        name: Type.String(),
        status: Type.Union([Type.Literal('ok'), Type.Literal('warn'), Type.Literal('fail')]),
        text: Type.String(),
        notes: Type.Array(Type.String()),
      },
      { title: 'Finding' },
    ),
  ),
});
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const WHO = 'With authentication on only for tokens of developers of the tenants that `metrics.tenants` names.';

/** Adds the routes for operators that show the settings and the findings about this machine. */
export function addInstallationRoutes(
  app: FastifyInstance,
  { settings, findings, visibleTo }: InstallationRoutesOptions,
): void {
  const check = (tenant: string) => {
    if (visibleTo !== null && !visibleTo.includes(tenant)) {
      throw permissionDenied('the installation is shown to the tenants of metrics.tenants only');
    }
  };
  app.get(
    '/api/settings',
    {
      config: {
        access: 'write',
        noEnvironments: true,
        docs: {
          tags: ['installation'],
          operationId: 'getSettings',
          summary: 'The settings in force',
          description: `Secrets are masked. ${WHO}`,
          response: { 200: json('They.', Settings) },
        },
      },
    },
    async ({ tenant }) => {
      check(tenant);
      return { settings: settings() };
    },
  );
  app.get(
    '/api/doctor',
    {
      config: {
        access: 'write',
        costly: 'scan',
        noEnvironments: true,
        docs: {
          tags: ['installation'],
          operationId: 'getFindings',
          summary: 'What works on this machine',
          description: `As \`rookery doctor\` says it of the service that runs. ${WHO}`,
          response: { 200: json('The findings.', Findings), 429: errorDocs('Too many look at once.') },
        },
      },
    },
    async ({ tenant }) => {
      check(tenant);
      return { findings: await findings() };
    },
  );
}
