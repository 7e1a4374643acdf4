import { openApiDocument } from './openapi.ts';

/** Part of JSON Schema that the project's documents use. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
  readonly description?: string;
}

export interface Parameter {
  readonly in: string;
  readonly name: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

type MediaTypes = Readonly<Record<string, { readonly schema?: Schema }>>;

export interface Operation {
  readonly operationId: string;
  readonly summary?: string;
  readonly parameters?: readonly (Parameter | { readonly $ref: string })[];
  readonly requestBody?: { readonly content: MediaTypes };
  readonly responses: Readonly<Record<string, { readonly content?: MediaTypes }>>;
}

type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>;

interface ServedDocument {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly security: unknown;
  readonly components: { readonly securitySchemes: unknown };
  readonly paths: Paths;
}

export interface ClientDocument {
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly parameters: Readonly<Record<string, Parameter>>;
  };
  readonly paths: Paths;
}

/** Path below which the frontend serves the routes of the meta_service. */
const META_PREFIX = '/api/meta';
/** Operations that both entries have. The document contains those of the frontend. */
const SYSTEM = new Set(['health', 'ready', 'metrics', 'openapi']);

/**
 * Names of schemas, by the first place where each schema occurs.
 * All other schemas get a name from their operation (`CreateAgentRequest`, `CreateAgentResponse`), or from
 * their schema and field.
 */
const NAMES: Readonly<Record<string, string>> = {
  'ready.503': 'NotReady',
  'metrics.400': 'Error',
  'invokeAgent.500': 'CallFailed',
  'createAgent.409': 'NameTaken',
  'createAgent.request.runtime_spec': 'RuntimeSpec',
  'createAgent.request.runtime_spec.rootfs': 'RuntimeRootfs',
  'createAgent.request.runtime_spec.extendedHandler': 'RuntimeHooks',
  'createAgent.request.env_vars.*': 'SecretReference',
  'createAgent.request.mounts[]': 'Mount',
  'createAgent.request.expose': 'AgentExpose',
  'createAgent.request.restart_policy': 'RestartPolicy',
  'createAgent.200': 'AgentStarted',
  'listAgents.200.instances[]': 'Agent',
  'listAgents.200.instances[].rootfs': 'AgentRootfs',
  'listAgents.200.instances[].rootfs.mounts[]': 'StoredMount',
  'listAgents.200.instances[].port_mappings[]': 'PortMapping',
  'listAgents.200.instances[].expose': 'AgentAddress',
  'listAgents.200.instances[].env_vars.*': 'StoredSecretReference',
  'listAgents.200.instances[].resources': 'AgentResources',
  'listAgents.200.instances[].restart_policy': 'StoredRestartPolicy',
  'deleteAgent.200': 'Deleted',
  'forkAgent.201[]': 'AgentFork',
  'forkAgent.201[].error': 'AgentForkError',
  'listFiles.200.files[]': 'FileEntry',
  'statFile.200.file': 'FileFacts',
  'linkAgent.request': 'LinkRequest',
  'linkAgent.200': 'Link',
  'invokeFunction.202': 'CallAccepted',
  'invokeFunction.400': 'FunctionError',
  'getAsyncResult.200': 'CallResult',
  'getAsyncResult.200.error': 'CallError',
  'endSession.200': 'SessionAnswer',
  'listFunctionInstances.200.instances[]': 'FunctionInstance',
  'getCode.200': 'CodePackageAnswer',
  'getCode.200.package': 'CodePackage',
  'createBuild.200.build': 'Build',
  'putSecret.200.secret': 'Secret',
  'listCalls.200.calls[]': 'CallRecord',
  'getCall.200.call': 'CallDetails',
  'putCallRecording.request': 'CallRecordingRequest',
  'putCallRecording.200.recording': 'CallRecording',
  'getCluster.200': 'Cluster',
  'getCluster.200.nodes[]': 'ClusterNode',
  'getSettings.200.settings[]': 'Setting',
  'getFindings.200.findings[]': 'Finding',
  'getSession.200': 'Session',
  'submitJob.request': 'JobRequest',
  'submitJob.request.runtime_env': 'RuntimeEnv',
  'listJobs.200[]': 'Job',
  'listJobs.200[].driver_info': 'JobDriver',
  'deleteJob.200': 'WasDeleted',
  'createJobSchedule.200': 'ScheduleCreated',
  'listJobSchedules.200[]': 'JobSchedule',
  'registerFunction.request.s3CodePath': 'S3CodePath',
  'registerFunction.request.extendedHandler': 'FunctionHooks',
  'registerFunction.request.extendedTimeout': 'FunctionHookTimeouts',
  'registerFunction.request.rootfs': 'FunctionRootfs',
  'registerFunction.request.rootfs.mounts[]': 'FunctionMount',
  'registerFunction.request.autoScaleConfig': 'AutoScaleConfig',
  'registerFunction.request.expose': 'FunctionExpose',
  'registerFunction.200': 'FunctionRegistered',
  'registerFunction.200.function': 'FunctionVersion',
  'registerFunction.200.function.s3CodePath': 'StoredS3CodePath',
  'registerFunction.200.function.extendedHandler': 'StoredFunctionHooks',
  'registerFunction.200.function.extendedTimeout': 'StoredFunctionHookTimeouts',
  'registerFunction.200.function.rootfs': 'StoredFunctionRootfs',
  'registerFunction.200.function.autoScaleConfig': 'StoredAutoScaleConfig',
  'registerFunction.200#1': 'MetaRefusal',
  'getFunction.200': 'FunctionAnswer',
  'createReservedInstances.request': 'ReservedInstancesRequest',
  'createReservedInstances.request.instanceConfigInfos[]': 'ReservedInstances',
  'createReservedInstances.200': 'ReservedInstancesAnswer',
  'createReservedInstances.200.instanceConfigInfos[]': 'StoredReservedInstances',
  'deleteReservedInstances.200': 'MetaAnswer',
  'createPools.request.pools[]': 'PoolRequest',
  'listPools.200.result.pools[]': 'Pool',
};

/** Returns one document of both entries for client generators. Each object has a name, and occurs once. */
export async function clientDocument(): Promise<string> {
  const [frontend, meta] = await Promise.all([served('frontend'), served('meta')]);
  const naming = new Naming();
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [document, prefix] of [
    [frontend, ''],
    [meta, META_PREFIX],
  ] as const) {
    for (const [path, methods] of Object.entries(document.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (prefix !== '' && SYSTEM.has(operation.operationId)) continue;
        const place = prefix + path.replace('{*}', '{path}');
        paths[place] = { ...paths[place], [method]: naming.operation(operation) };
      }
    }
  }
  const document = {
    openapi: frontend.openapi,
    info: {
      title: 'Rookery',
      version: frontend.info.version,
      description: 'All of the service at one address: the frontend, and the meta_service below `/api/meta`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [
      {
        url: '{address}',
        variables: { address: { default: 'http://127.0.0.1:8888', description: 'Where the frontend listens.' } },
      },
    ],
    security: frontend.security,
    paths,
    components: {
      securitySchemes: frontend.components.securitySchemes,
      parameters: sorted(naming.parameters),
      schemas: sorted(naming.schemas),
    },
  };
  naming.failOnUnused();
  return `${JSON.stringify(document, null, 2)}\n`;
}

async function served(entry: 'frontend' | 'meta'): Promise<ServedDocument> {
  return JSON.parse(await openApiDocument(entry)) as ServedDocument;
}

class Naming {
  readonly schemas = new Map<string, Schema>();
  readonly parameters = new Map<string, Parameter>();
  readonly #nameOf = new Map<string, string>();
  readonly #unused = new Set(Object.keys(NAMES));

  operation(operation: Operation): object {
    const { operationId: id, parameters = [], requestBody, responses } = operation;
    const capital = id.charAt(0).toUpperCase() + id.slice(1);
    return {
      ...operation,
      ...(parameters.length === 0 ? {} : { parameters: parameters.map(one => this.#parameter(one as Parameter)) }),
      ...(requestBody === undefined
        ? {}
        : {
            requestBody: {
              ...requestBody,
              content: this.#content(requestBody.content, `${id}.request`, `${capital}Request`),
            },
          }),
      responses: Object.fromEntries(
        Object.entries(responses).map(([status, response]) => {
          if (response.content === undefined) return [status, response];
          const name = `${capital}${status.startsWith('2') ? 'Response' : `Error${status}`}`;
          return [status, { ...response, content: this.#content(response.content, `${id}.${status}`, name) }];
        }),
      ),
    };
  }

  /** Throws if NAMES has a place that no document contains, because such a row would mislead a reader. */
  failOnUnused(): void {
    if (this.#unused.size > 0) throw new Error(`NAMES has places that no document has: ${[...this.#unused]}`);
  }

  #content(content: MediaTypes, place: string, name: string): object {
    return Object.fromEntries(
      Object.entries(content).map(([type, { schema, ...rest }]) => [
        type,
        schema === undefined ? rest : { ...rest, schema: this.#schema(schema, place, name) },
      ]),
    );
  }

  /** Replaces a header that several operations have by a reference. */
  #parameter(parameter: Parameter): Parameter | { readonly $ref: string } {
    if (parameter.in !== 'header') {
      // The router's `{*}` has no name, so the parameter is called `path`.
      return parameter.name === '*' ? { ...parameter, name: 'path' } : parameter;
    }
    const text = JSON.stringify(parameter);
    const known = this.parameters.get(parameter.name);
    if (known !== undefined && JSON.stringify(known) !== text) return parameter;
    this.parameters.set(parameter.name, parameter);
    return { $ref: `#/components/parameters/${parameter.name}` };
  }

  /**
   * Returns the schema with each object in it replaced by a reference.
   * `place` is the path of the schema in the document. `name` is its name if NAMES has none for this place.
   */
  #schema(schema: Schema, place: string, name: string): Schema {
    const choices = (all: readonly Schema[]) => {
      let objects = 0;
      return all.map(one => {
        if (one.type !== 'object') return this.#schema(one, place, name);
        const nth = objects++;
        return this.#schema(one, nth === 0 ? place : `${place}#${nth}`, nth === 0 ? name : `${name}${nth + 1}`);
      });
    };
    const inner: Schema = {
      ...schema,
      ...(schema.items === undefined ? {} : { items: this.#schema(schema.items, `${place}[]`, `${name}Item`) }),
      ...(schema.anyOf === undefined ? {} : { anyOf: choices(schema.anyOf) }),
      ...(schema.oneOf === undefined ? {} : { oneOf: choices(schema.oneOf) }),
      ...(typeof schema.additionalProperties !== 'object'
        ? {}
        : { additionalProperties: this.#schema(schema.additionalProperties, `${place}.*`, `${name}Value`) }),
    };
    const { properties } = schema;
    if (schema.type !== 'object' || properties === undefined) return inner;
    const text = JSON.stringify(schema);
    const known = this.#nameOf.get(text);
    const given = NAMES[place];
    this.#unused.delete(place);
    if (known !== undefined) return { $ref: `#/components/schemas/${known}` };
    const own = given ?? name;
    if (this.schemas.has(own)) throw new Error(`two schemas would be called ${own}; give that of ${place} a name`);
    this.#nameOf.set(text, own);
    // Reserves the position in the map before the inner schemas are added.
    this.schemas.set(own, schema);
    this.schemas.set(own, {
      ...inner,
      properties: Object.fromEntries(
        Object.entries(properties).map(([field, value]) => [
          field,
          this.#schema(value, `${place}.${field}`, own + pascalCase(field)),
        ]),
      ),
    });
    return { $ref: `#/components/schemas/${own}` };
  }
}

function pascalCase(field: string): string {
  return field.replace(/(?:^|[_-])([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function sorted<T>(map: ReadonlyMap<string, T>): Record<string, T> {
  return Object.fromEntries([...map].sort(([a], [b]) => (a < b ? -1 : 1)));
}
